//! Commands that cluster mode refuses because of their arguments. The caller knows the mode: the
//! execution of an entry does not depend on it.

use bytes::Bytes;

use crate::keys::rename;
use crate::sort;

/// Returns the error of a command that is not allowed in cluster mode.
pub fn denial(name: &str, args: &[Bytes]) -> Option<&'static str> {
    match name {
        // The keys that a pattern names may be in any slot.
        "sort" | "sort_ro" => sort::pattern_of(name, args).map(sort::Pattern::denial_in_cluster),
        // There is one database.
        "move" if args.len() == 3 => Some("ERR MOVE is not allowed in cluster mode"),
        "copy" if rename::copies_to_another_database(args) => {
            Some("ERR Copying to another database is not allowed in cluster mode")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_databases_and_patterns_are_denied() {
        let denied = |line: &str| {
            let args: Vec<Bytes> =
                line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
            denial(&args[0].to_ascii_lowercase().escape_ascii().to_string(), &args)
        };
        let (moved, copied) = ("ERR MOVE is not allowed", "ERR Copying to another database is not allowed");
        for (line, expected) in [
            ("MOVE k 1", Some(moved)),
            ("MOVE k 0", Some(moved)),
            ("MOVE k none", Some(moved)),
            ("MOVE k", None),
            ("COPY a b", None),
            ("COPY a b REPLACE DB 0", None),
            ("COPY a b DB 1 replace", Some(copied)),
            ("COPY a b db 15", Some(copied)),
            // These have errors of their own.
            ("COPY a b DB 16", None),
            ("COPY a b DB 1 NOW", None),
            ("COPY a b DB", None),
            ("SORT k BY w_*", Some("ERR BY option of SORT denied")),
            ("SORT_RO k GET #", Some("ERR GET option of SORT denied")),
            ("SORT k", None),
        ] {
            let denied = denied(line).map(|text| text.split(" in ").next().unwrap());
            assert_eq!(denied.map(|text| text.to_lowercase()), expected.map(str::to_lowercase), "{line}");
        }
    }
}
