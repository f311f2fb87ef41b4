//! The bodies of fuzz targets, which `fuzz/` calls.

use bytes::Bytes;
use resp::Reply;

use crate::{library_name, load_library, run, run_exactly, Called, Host, Outcome, Script};

/// Scripts that pass their arguments to the libraries. The first input byte chooses one.
const FIXED: [&str; 8] = [
    "return cjson.encode(cjson.decode(ARGV[1]))",
    "cjson.encode_sparse_array(true, 1, 1) cjson.encode_max_depth(9) cjson.decode_max_depth(9)
     return cjson.encode({cjson.decode(ARGV[1]), n = cjson.decode(ARGV[2])})",
    "return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))",
    "local a, b, c = cmsgpack.unpack_one(ARGV[1], #ARGV[2]) cmsgpack.unpack_limit(ARGV[1], 3, #ARGV[2]) return b",
    "return {struct.size(ARGV[1]), struct.unpack(ARGV[1], ARGV[2])}",
    "return struct.pack(ARGV[1], 1, -2, 3.5, ARGV[2], 5, 6)",
    "return string.format(ARGV[1], ARGV[2], 1, -2.5, ARGV[2], {}, nil)",
    "local n = 0 for a, b in string.gmatch(ARGV[2], ARGV[1]) do n = n + 1 end
     return {n, string.gsub(ARGV[2], ARGV[1], '%0%1x'), string.find(ARGV[2], ARGV[1], -3)}",
];

/// Answers commands with replies of all kinds.
struct Commands;

impl Host for Commands {
    fn call(&mut self, args: Vec<Bytes>, resp3: bool) -> Called {
        let text = Reply::bulk("text");
        Called::Reply(match &args[0][..] {
            b"end" => return Called::Ended,
            b"error" => Reply::error("WRONGTYPE not that"),
            b"status" => Reply::Simple("FINE".into()),
            b"int" => Reply::Int(i64::MAX),
            b"nil" => Reply::Nil,
            b"array" => Reply::Array(vec![text, Reply::NilArray, Reply::Array(vec![Reply::error("ERR e")])]),
            b"map" if resp3 => {
                Reply::Map(vec![(text.clone(), Reply::Double(1.5)), (text, Reply::Bool(true))])
            }
            b"set" if resp3 => Reply::Set(vec![text, Reply::Double(f64::NAN)]),
            b"get" => args.get(1).map_or(Reply::Nil, |key| Reply::Bulk(key.clone())),
            _ => return Called::Refused("Unknown Redis command called from script".into()),
        })
    }

    fn may_call(&mut self, args: &[Bytes]) -> Option<bool> {
        (args[0] != "nope").then_some(args.len() > 1)
    }
}

/// Executes a script, the code of a library, or a script that passes arguments to a library of
/// Lua. It ends within its limits, and in a state that was used as in a new one.
pub fn script(input: &[u8]) {
    let Some((&kind, rest)) = input.split_first() else { return };
    let keys = [Bytes::from_static(b"k")];
    let mut args = vec![Bytes::from_static(b"1"), Bytes::from_static(b"{\"a\":[1]}")];
    let (body, function) = match kind {
        0 => (rest, None),
        1 => {
            // It has limits of its own.
            if library_name(rest).is_err() || load_library(rest).is_err() {
                return;
            }
            (rest, Some("f"))
        }
        fixed => {
            // The first argument follows its length.
            let Some((&length, rest)) = rest.split_first() else { return };
            let (first, second) = rest.split_at(usize::from(length).min(rest.len()));
            args = vec![Bytes::copy_from_slice(first), Bytes::copy_from_slice(second)];
            (FIXED[usize::from(fixed) % FIXED.len()].as_bytes(), None)
        }
    };
    let script = Script { body, function, keys: &keys, args: &args, seed: 7 };
    let quick = run(&script, &mut Commands);
    if quick == Outcome::Again {
        // Most of these loop without an end. It would take a second to find out about each.
        if input.len() % 64 == 0 {
            run_exactly(&script, &mut Commands);
        }
        return;
    }
    let exact = run_exactly(&script, &mut Commands);
    // A NaN does not equal itself.
    assert_eq!(format!("{quick:?}"), format!("{exact:?}"), "a state that was used gives the same result");
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_of_the_fuzz_target_harm_nothing() {
        super::replay::seeds("script", super::script);
    }
}
