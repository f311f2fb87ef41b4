//! Greetings, authentication, settings and names: scripts that both servers must answer alike.

use resp::Reply;

use crate::script::{answers, assert_same};
use crate::servers::{redis, steelyard};

#[test]
fn greetings_choose_the_protocol_as_in_redis() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    assert_same(
        &ours,
        &theirs,
        &[
            "HELLO
             HELLO 2
             HELLO 3
             HELLO
             HGETALL nothing
             GET nothing
             HELLO 2
             HGETALL nothing
             GET nothing",
            "HELLO 1
             HELLO 4
             HELLO x
             HELLO ''
             HELLO +3
             HELLO 03
             HELLO 9223372036854775808
             HELLO 3 SETNAME
             HELLO 3 SETNAME a_b
             HELLO 3 SETNAME a_b NONSENSE
             HELLO 3 NONSENSE
             HELLO 3 AUTH
             HELLO 3 AUTH default
             CLIENT GETNAME
             HELLO 3 SETNAME one
             CLIENT GETNAME
             HELLO 3 SETNAME ''
             CLIENT GETNAME
             HELLO 2 AUTH nobody secret
             HELLO 2 AUTH default anything SETNAME two
             CLIENT GETNAME
             HELLO 3 SETNAME three SETNAME four
             CLIENT GETNAME
             RESET
             CLIENT GETNAME
             HGETALL nothing",
            "AUTH secret
             AUTH default secret
             AUTH nobody secret
             AUTH a b c
             AUTH",
            "QUIT
             PING",
            "QUIT now
             PING",
        ],
    );
}

#[test]
fn without_the_password_little_is_allowed() {
    let flags = ["--requirepass", "open sesame"];
    let Some(theirs) = redis(&flags) else { return };
    let ours = steelyard(&flags);
    assert_same(
        &ours,
        &theirs,
        &[
            "PING
             GET k
             SET k
             ECHO a
             SELECT 1
             CLIENT GETNAME
             CLIENT NONSENSE
             COMMAND COUNT
             CONFIG GET requirepass
             INFO
             HELLO
             HELLO 3
             HELLO 3 SETNAME x
             HELLO 3 AUTH default wrong
             HELLO 9 AUTH default open_sesame
             PING
             AUTH wrong
             AUTH default wrong
             AUTH nobody open_sesame
             AUTH a b c
             PING
             AUTH open_sesame
             PING
             AUTH wrong
             PING
             RESET
             PING
             AUTH default open_sesame
             PING
             QUIT
             PING",
            "HELLO 3 AUTH default open_sesame SETNAME me
             CLIENT GETNAME
             SET k v
             GET k",
            "RESET
             GET k
             QUIT
             GET k",
        ],
    );
    // Redis reveals even without the password which commands it knows. Steelyard does not.
    assert_eq!(
        answers(&ours, "NONSENSE a"),
        [format!("{:?}", Reply::error("NOAUTH Authentication required."))]
    );
}

/// The password may be set and removed while clients are connected.
#[test]
fn the_password_can_be_changed_while_running() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    assert_same(
        &ours,
        &theirs,
        &[
            "CONFIG SET requirepass first
             PING",
            "PING
             AUTH first
             CONFIG SET requirepass second
             PING",
            "AUTH first
             AUTH second
             CONFIG SET requirepass ''
             PING",
            "PING
             AUTH second",
        ],
    );
}

#[test]
fn settings_are_read_and_refused_as_in_redis() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    assert_same(
        &ours,
        &theirs,
        &[
            "CONFIG GET maxclients
             CONFIG GET MAXCLIENTS
             CONFIG GET databases
             CONFIG GET nonsense
             CONFIG GET proto-max-bulk-len
             CONFIG GET maxmemory-policy
             CONFIG GET save
             CONFIG GET
             CONFIG
             CONFIG NONSENSE
             CONFIG SET maxclients
             CONFIG SET nonsense 1
             CONFIG SET maxclients 500 nonsense 1
             CONFIG GET maxclients
             CONFIG SET maxclients 0
             CONFIG SET maxclients x
             CONFIG SET maxclients 400
             CONFIG GET maxclients
             CONFIG SET maxclients 400 maxclients 300
             CONFIG GET timeout
             CONFIG SET timeout -1
             CONFIG SET timeout 2147483648
             CONFIG SET timeout x
             CONFIG SET timeout 2147483647
             CONFIG GET timeout
             CONFIG SET timeout 0
             CONFIG GET tcp-keepalive
             CONFIG SET tcp-keepalive -1
             CONFIG SET tcp-keepalive 17
             CONFIG GET tcp-keepalive
             CONFIG SET databases 3
             CONFIG SET protected-mode maybe
             CONFIG SET protected-mode no
             CONFIG GET protected-mode
             CONFIG SET PROTECTED-MODE YES
             CONFIG GET protected-mode
             CONFIG SET loglevel nonsense
             CONFIG SET loglevel warning
             CONFIG GET loglevel
             CONFIG SET loglevel NOTICE
             CONFIG SET proto-max-bulk-len x
             CONFIG SET proto-max-bulk-len 2mb
             CONFIG GET proto-max-bulk-len
             CONFIG SET proto-max-bulk-len 2000000
             CONFIG GET proto-max-bulk-len
             CONFIG SET maxmemory-policy noeviction
             CONFIG SET maxmemory-policy never
             CONFIG SET appendonly maybe
             CONFIG SET appendfsync never
             CONFIG SET save ''
             CONFIG GET save
             CLIENT LIST ID -1 0 99999
             CLIENT LIST ID 1x
             CONFIG RESETSTAT
             CONFIG RESETSTAT now",
            "HELLO 3
             CONFIG GET maxclients
             CONFIG GET nonsense",
        ],
    );
}

#[test]
fn a_lowered_limit_on_strings_holds_at_once() {
    let Some(theirs) = redis(&["--proto-max-bulk-len", "1mb"]) else { return };
    let ours = steelyard(&[]);
    assert_eq!(answers(&ours, "CONFIG SET proto-max-bulk-len 1048576"), [format!("{:?}", Reply::OK)]);
    for server in [&ours, &theirs] {
        let mut connection = server.connect();
        connection.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n").unwrap();
        let refused = [Reply::error("ERR Protocol error: invalid bulk length")];
        assert_eq!(connection.replies_to_the_end().unwrap(), refused);
    }
}

#[test]
fn unknown_names_and_wrong_counts_are_worded_as_in_redis() {
    let Some(theirs) = redis(&[]) else { return };
    let ours = steelyard(&[]);
    let long = "x".repeat(200);
    let many = format!("NONSENSE {0} {0}", "y".repeat(100));
    assert_same(
        &ours,
        &theirs,
        &[
            "NONSENSE
             NONSENSE a b c
             nonsense a_b ''
             ''
             '' a
             GET
             GET a b
             SET k
             CLIENT
             CLIENT NONSENSE
             CLIENT nonsense a b
             CLIENT SETNAME
             CLIENT SETNAME a b
             CLIENT GETNAME a
             CLIENT ID a
             CONFIG nonsense
             COMMAND nonsense
             COMMAND GETKEYS
             COMMAND GETKEYS GET
             COMMAND GETKEYS GET k
             COMMAND GETKEYS NONSENSE a
             COMMAND GETKEYS PING
             COMMAND GETKEYS MSET a 1 b 2
             COMMAND GETKEYS MSET a
             COMMAND GETKEYSANDFLAGS RENAME a b
             COMMAND GETKEYSANDFLAGS COPY a b REPLACE
             COMMAND INFO nonsense
             COMMAND LIST FILTERBY nonsense x
             COMMAND LIST FILTERBY PATTERN hsetn*
             COMMAND COUNT x
             OBJECT
             OBJECT NONSENSE k
             CLUSTER KEYSLOT
             PING a b
             ECHO
             SELECT
             SELECT x
             SELECT 16
             SELECT -1
             RESET a
             TIME a
             INFO a_b
             CONFIG GET",
            &long,
            &many,
            &format!("{long} {long} z"),
        ],
    );
}
