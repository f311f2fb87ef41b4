//! The known differences between the two servers, and their reasons. Each has a row in
//! docs/COMPATIBILITY.md.

use resp::Reply;

use crate::compare::Compare;
use crate::generator::Request;

pub struct Known {
    /// Words of the row in docs/COMPATIBILITY.md that describes the difference.
    pub documented: &'static str,
    pub applies: fn(&Request, &Reply, &Reply) -> bool,
    /// The index of the argument with the key whose stored value differs, too.
    pub key_to_delete: fn(&Request) -> Option<usize>,
}

pub const KNOWN: [Known; 4] = [
    Known {
        documented: "Sums are exact decimals",
        applies: |request, ours, theirs| {
            matches!(request.compare, Compare::Sum { .. }) && is_rounding_noise(ours, theirs)
        },
        key_to_delete: |request| match request.compare {
            Compare::Sum { key_at } => Some(key_at),
            _ => None,
        },
    },
    Known {
        documented: "A negative zero is stored as 0",
        applies: |request, ours, theirs| {
            request.args[0].to_ascii_uppercase().starts_with(b"Z") && is_same_but_for_zeros(ours, theirs)
        },
        key_to_delete: |_| None,
    },
    Known {
        documented: "A negative count below -1048576",
        applies: |request, ours, theirs| {
            matches!(request.compare, Compare::RandomFields | Compare::RandomMembers | Compare::RandomScores)
                && *ours == Reply::error("ERR value is out of range")
                && !theirs.is_error()
        },
        key_to_delete: |_| None,
    },
    Known {
        documented: "refuses right weights after a command that met a number out of range",
        applies: |request, ours, theirs| {
            request.args[0].to_ascii_uppercase().starts_with(b"SORT")
                && *theirs == Reply::error("ERR One or more scores can't be converted into double")
                && !ours.is_error()
        },
        key_to_delete: |request| {
            request.args.iter().position(|arg| arg.eq_ignore_ascii_case(b"STORE")).map(|at| at + 1)
        },
    },
];

/// Returns true if the replies are equal once texts of negative zeros are replaced by zeros.
pub fn is_same_but_for_zeros(ours: &Reply, theirs: &Reply) -> bool {
    fn without_sign(reply: &Reply) -> Reply {
        match reply {
            Reply::Bulk(text) if text == "-0" => Reply::bulk("0"),
            // A pair of a walk is compared as a text.
            Reply::Bulk(text) => match std::str::from_utf8(text) {
                Ok(pair) => Reply::bulk(pair.replace(r#"Bulk(b"-0")"#, r#"Bulk(b"0")"#)),
                Err(_) => reply.clone(),
            },
            Reply::Array(items) => Reply::Array(items.iter().map(without_sign).collect()),
            other => other.clone(),
        }
    }
    without_sign(ours) == without_sign(theirs)
}

/// Returns true if two decimal numbers differ by at most one part in 10^15.
fn is_rounding_noise(ours: &Reply, theirs: &Reply) -> bool {
    let number = |reply: &Reply| match reply {
        Reply::Bulk(text) => std::str::from_utf8(text).ok()?.parse::<f64>().ok(),
        _ => None,
    };
    match (number(ours), number(theirs)) {
        (Some(ours), Some(theirs)) => (ours - theirs).abs() <= ours.abs().max(1.0) * 1e-15,
        _ => false,
    }
}

#[test]
fn every_known_difference_is_documented() {
    let page = include_str!("../../../../docs/COMPATIBILITY.md");
    for known in &KNOWN {
        assert!(page.contains(known.documented), "docs/COMPATIBILITY.md does not say: {}", known.documented);
    }
}
