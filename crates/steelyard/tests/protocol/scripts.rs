//! Scripts by their digests, in transactions, with flags, and on rows that are not in RAM.

use resp::Reply;

use crate::script::assert_same;
use crate::servers::{redis, steelyard};

#[test]
fn commands_on_scripts_are_answered_as_redis_answers_them() {
    let Some(theirs) = redis(&[]) else { return };
    const DIGEST: &str = "4ca238f611c9d0ae4e9a75a5dbac22aedc379801";
    let by_digest = format!(
        "EVALSHA {DIGEST} 0\nSCRIPT EXISTS {DIGEST} x\nSCRIPT LOAD return_5\nEVALSHA {DIGEST} 0\n\
         EVALSHA_RO {DIGEST} 0\nEVALSHA {} 0\nSCRIPT EXISTS {DIGEST} x\nSCRIPT FLUSH\nEVALSHA {DIGEST} 0\n\
         EVAL return_5 0\nEVALSHA {DIGEST} 0",
        DIGEST.to_uppercase()
    );
    let in_transaction = format!(
        "MULTI\nEVAL return_5 x\nEVALSHA aaaa 0\nSET q 1\nEVAL return_redis.call('incr','q') 0\n\
         EVALSHA {DIGEST} 0\nEXEC\nGET q\nMULTI\nEVAL return_nosuch 1 q\nEVAL_RO return_1 0\nEXEC"
    );
    assert_same(
        &steelyard(&[]),
        &theirs,
        &[
            &by_digest,
            &in_transaction,
            "EVAL return\nEVAL\nEVAL return x\nEVAL return -1\nEVAL return 2 a\nEVAL return 1 a\nEVAL return 0 a",
            "EVALSHA x 0\nEVALSHA x\nEVALSHA x y\nSCRIPT\nSCRIPT NOPE\nSCRIPT EXISTS\nSCRIPT LOAD",
            "SCRIPT FLUSH x\nSCRIPT FLUSH ASYNC\nSCRIPT FLUSH sync\nSCRIPT KILL\nSCRIPT DEBUG NO\nSCRIPT DEBUG X",
            "SCRIPT LOAD return(\nSCRIPT LOAD #!js",
            "EVAL #!lua¶return_1 0\nEVAL #!lua_flags=x¶return 0\nEVAL #!js¶return 0",
            "EVAL #!lua_a=1¶return 0\nEVAL #!lua 0\nEVAL_RO #!lua¶return 0\nEVAL #!lua¶return_x 0",
            "EVAL #!lua_flags=\"no-writes\"¶return_1 0\nEVAL #!'lua'_\"flags=no-writes\"¶return_1 0",
            "EVAL #!lua_flags=\"no-writes¶return_1 0\nEVAL #!lua_flags='x'¶return_1 0\nEVAL #!lua_''¶return_1 0",
            "EVAL return_redis['acl\\95check\\95cmd']('xgroup') 0\nEVAL return_redis['acl\\95check\\95cmd']('get') 0\n\
             EVAL return_redis['acl\\95check\\95cmd']('xgroup','create') 0\n\
             EVAL return_redis['acl\\95check\\95cmd']('xgroup','nope') 0\nEVAL return_redis['acl\\95check\\95cmd']('nope') 0",
            "EVAL redis.setresp('3')_return_1 0\nEVAL redis.setresp('x')_return_1 0\nEVAL redis.setresp(nil) 0",
            "EVAL #!lua_flags=no-writes¶return_redis.call('set','a',1) 0",
            "EVAL_RO return_redis.call('set','a',1) 0\nEVAL_RO return_redis.call('get',KEYS[1]) 1 a",
            "EVAL #!lua_flags=no-cluster,allow-oom,allow-stale¶return_1 0",
            "SET a 1\nWATCH a\nEVAL return_redis.call('set','a',2) 0\nMULTI\nGET a\nEXEC",
            "SADD m a\nEVAL_RO return_redis.call('smembers','m') 1 a\nEVAL return_redis.call('smembers','m') 1 a",
            "SET a 1 PXAT 1\nEVAL_RO return_redis.call('get','a') 0\nEXISTS a",
            "ACL SETUSER u on nopass ~own:* +eval +evalsha +get +set +multi +exec +ping\nAUTH u x\n\
             EVAL return_redis.call('incr','own:1') 0\nEVAL return_redis.call('get','other') 0\n\
             EVAL return_redis.pcall('set','own:1','x') 0\nEVAL return_redis.pcall('get','own:1') 0\n\
             EVAL return_redis['acl\\95check\\95cmd']('get','other') 0\nEVAL return_redis['acl\\95check\\95cmd']('get','own:x') 0\n\
             EVAL return_1 1 other\nEVAL_RO return_1 0\nEVALSHA x 1 other\nMULTI\n\
             EVAL return_redis.pcall('get','other') 0\nEVAL return_redis.pcall('set','own:2',KEYS[1]) 1 own:2\n\
             EXEC\nGET own:2",
            "COMMAND GETKEYS EVAL x 2 a b c\nCOMMAND GETKEYS EVAL x 0\nCOMMAND GETKEYS EVAL x q",
            "SELECT 3\nEVAL redis.call('set','s',1)_redis.call('select',4)_return_redis.call('exists','s') 0\nGET s",
        ],
    );
}

#[test]
fn scripts_are_refused_what_they_must_not_do() {
    let server = steelyard(&[]);
    let mut connection = server.connect();
    let mut eval = |body: &str| connection.call(&["EVAL", body, "0"]).unwrap();
    for body in [
        "while true do end",
        "local t = {} while true do t[#t + 1] = string.rep('x', 1000000) .. #t end",
        "local function f() return 1 + f() end return f()",
        "return string.rep('x', 2000000000)",
        "return cjson.decode(string.rep('[', 1000000))",
        "return loadstring('\\27Lua')()",
        "return os.execute('id')",
        "return redis.call('SHUTDOWN')",
        "return string.find(string.rep('a', 100000), string.rep('.-', 50) .. 'b')",
    ] {
        let Reply::Error(_) = eval(body) else { panic!("{body}") };
    }
    assert_eq!(eval("return redis.call('SET', 'a', 'x')"), Reply::OK);
    assert_eq!(eval("return redis.call('GET', 'a')"), Reply::bulk("x"));
}
