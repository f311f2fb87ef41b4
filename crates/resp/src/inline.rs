//! Inline requests: a line of words, quoted as in Redis's `sdssplitargs`.

use bytes::Bytes;

use crate::ProtocolError;

/// Splits a line, without its line end, into words.
///
/// Words are copied, so that a hand-typed request does not keep a receive buffer alive. NUL is an
/// ordinary byte here, whereas Redis ends a string at it.
///
/// # Errors
/// The error for quotes that do not match.
pub fn split_words(line: &[u8]) -> Result<Vec<Bytes>, ProtocolError> {
    let mut words = Vec::new();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|&byte| is_space(byte)) {
            at += 1;
        }
        if at == line.len() {
            return Ok(words);
        }
        let mut word = Vec::new();
        at = read_word(line, at, &mut word)?;
        words.push(Bytes::from(word));
    }
}

/// Reads the word that starts at `at` into `word`. Returns the position of its end.
fn read_word(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    while let Some(&byte) = line.get(at) {
        match byte {
            // Fewer bytes than `is_space`: a vertical tab or form feed separates words only before
            // their first byte.
            b' ' | b'\n' | b'\r' | b'\t' => return Ok(at),
            b'"' => return read_double_quoted(line, at + 1, word),
            b'\'' => return read_single_quoted(line, at + 1, word),
            byte => word.push(byte),
        }
        at += 1;
    }
    Ok(at)
}

fn read_double_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    loop {
        match line.get(at..) {
            Some(&[b'\\', b'x', high, low, ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex_value(high) << 4 | hex_value(low));
                at += 4;
            }
            Some(&[b'\\', escaped, ..]) => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => other,
                });
                at += 2;
            }
            Some(&[b'"', ..]) => return end_of_quotes(line, at + 1),
            Some(&[byte, ..]) => {
                word.push(byte);
                at += 1;
            }
            _ => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

fn read_single_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    loop {
        match line.get(at..) {
            Some(&[b'\\', b'\'', ..]) => {
                word.push(b'\'');
                at += 2;
            }
            Some(&[b'\'', ..]) => return end_of_quotes(line, at + 1),
            Some(&[byte, ..]) => {
                word.push(byte);
                at += 1;
            }
            _ => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

/// Checks that a closing quote ends the word, so that a space or the end of the line follows it.
fn end_of_quotes(line: &[u8], at: usize) -> Result<usize, ProtocolError> {
    match line.get(at) {
        Some(&byte) if !is_space(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(at),
    }
}

/// Equals C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Bytes> {
        split_words(line.as_bytes()).unwrap()
    }

    #[test]
    fn blanks_part_words() {
        assert_eq!(words("  set \t key  value  "), ["set", "key", "value"]);
        assert_eq!(words(""), Vec::<Bytes>::new());
        assert_eq!(words(" \t\x0b\x0c "), Vec::<Bytes>::new());
        assert_eq!(words("\x0bping"), ["ping"]);
        assert_eq!(words("a\x0bb"), ["a\x0bb"], "a vertical tab inside a word belongs to it");
    }

    #[test]
    fn double_quotes_take_escapes() {
        assert_eq!(words(r#"set "a b" "\n\r\t\b\a\\\"\q""#)[2], &b"\n\r\t\x08\x07\\\"q"[..]);
        assert_eq!(split_words(br#""\x00\xfF\xag""#).unwrap()[0], &b"\x00\xffxag"[..]);
        assert_eq!(words(r#""""#), [""]);
    }

    #[test]
    fn single_quotes_take_only_the_escaped_quote() {
        assert_eq!(words(r"'it\'s' '\n\x41'"), ["it's", r"\n\x41"]);
        assert_eq!(words("''"), [""]);
    }

    #[test]
    fn quotes_may_open_inside_a_word() {
        assert_eq!(words(r#"foo"bar baz" x'y z'"#), ["foobar baz", "xy z"]);
    }

    #[test]
    fn quotes_that_do_not_close_or_do_not_end_the_word_are_refused() {
        for line in ["\"", "'", "\"a", "'a", "\"a\"b", "'a'b", "\"a\\\"", "'a\\'", "\"\\", "''''", "\"\"''"] {
            assert_eq!(split_words(line.as_bytes()), Err(ProtocolError::UnbalancedQuotes), "{line:?}");
        }
    }
}
