//! Glob patterns as Redis matches them: `*`, `?`, `[a-z]`, `[^a]` and `\` for the next character.
//!
//! The matcher backtracks only to the last `*`, which suffices for globs. A match takes at most
//! pattern x text steps, whereas plain recursion takes exponentially many.

/// Returns true if a pattern of names matches. `*` alone matches every name, also an empty one.
pub(crate) fn selects(pattern: &[u8], name: &[u8]) -> bool {
    pattern == b"*" || matches(pattern, name)
}

/// Returns true if a pattern matches a text.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Redis does not examine the pattern if the text is empty, so no star matches it.
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut p, mut t) = (0, 0);
    // The pattern position after the last star, and the text position last tried for it.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        if t == text.len() && p == pattern.len() {
            return true;
        }
        let step = match (t < text.len(), p < pattern.len()) {
            (true, true) => match_one(&pattern[p..], text[t]),
            _ => None,
        };
        match (step, star) {
            (Some(used), _) => {
                p += used;
                t += 1;
            }
            (None, Some((after, tried))) if tried < text.len() => {
                p = after;
                t = tried + 1;
                star = Some((after, t));
            }
            (None, _) => return false,
        }
    }
}

/// Matches one byte against the first element of a pattern, which is not a star. Returns the number
/// of pattern bytes used.
pub(crate) fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern[0] {
        b'?' => Some(1),
        b'[' => match_class(pattern, byte),
        b'\\' if pattern.len() >= 2 => (pattern[1] == byte).then_some(2),
        literal => (literal == byte).then_some(1),
    }
}

/// Matches a byte against a class. As in Redis, a class without an end takes the rest of the
/// pattern as its members.
fn match_class(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = if negated { 2 } else { 1 };
    let mut found = false;
    loop {
        match &pattern[at.min(pattern.len())..] {
            [] => break,
            [b'\\', literal, ..] => {
                found |= *literal == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [first, b'-', last, ..] => {
                let (low, high) = (*first.min(last), *first.max(last));
                found |= (low..=high).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at.min(pattern.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", false),
            ("**", "", false),
            ("a**", "a", true),
            ("*", "anything", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h*llo*", "hllo", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("[\\]]", "]", true),
            ("a\\", "a\\", true),
            ("[abc", "b", true),
            ("a*b*c", "a__b__c", true),
            ("a*b*c", "a__b__", false),
            ("*a", "bba", true),
            ("*[0-9]", "key7", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn a_star_alone_selects_every_name() {
        assert!(selects(b"*", b"") && selects(b"*", b"a") && selects(b"", b"") && selects(b"a*", b"ab"));
        assert!(!selects(b"**", b"") && !selects(b"a", b"b"));
    }

    #[test]
    fn no_pattern_takes_exponential_steps() {
        // Recursion would take about 2^60 steps here.
        let pattern = "a*".repeat(60) + "b";
        assert!(!matches(pattern.as_bytes(), &[b'a'; 2000]));
    }
}
