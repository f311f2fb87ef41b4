//! Words of a line, as Redis cuts them out of selectors: separated by spaces, with quotes as in C.

/// Splits a line. Returns `None` if a quote is not closed, or if something follows one at once.
pub(crate) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    // Redis reads a C string.
    let mut rest = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let mut words = Vec::new();
    loop {
        while let [first, tail @ ..] = rest {
            if !is_space(*first) {
                break;
            }
            rest = tail;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        rest = take_word(rest, &mut word)?;
        words.push(word);
    }
}

/// Takes a word, which may have quoted parts. Returns the text after it.
fn take_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let [first, tail @ ..] = rest {
        rest = match first {
            space if is_space(*space) => return Some(tail),
            quote @ (b'"' | b'\'') => {
                let after = take_quoted(tail, *quote, word)?;
                return after.first().is_none_or(|next| is_space(*next)).then_some(after);
            }
            byte => {
                word.push(*byte);
                tail
            }
        };
    }
    Some(rest)
}

/// Takes a text up to its closing quote. Returns the text after it.
fn take_quoted<'a>(mut rest: &'a [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [first, tail @ ..] if *first == quote => return Some(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if quote == b'"' && digit(*high).is_some() && digit(*low).is_some() =>
            {
                word.push(digit(*high)? << 4 | digit(*low)?);
                tail
            }
            [b'\\', next, tail @ ..] if quote == b'"' => {
                word.push(match next {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                tail
            }
            [b'\\', b'\'', tail @ ..] if quote == b'\'' => {
                word.push(b'\'');
                tail
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                tail
            }
            [] => return None,
        };
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Returns true for the characters that C's `isspace` names.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Returns true if a name or a pattern has spaces or NUL bytes, which none may have.
pub fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|&byte| byte == 0 || is_space(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let words = split(line.as_bytes())?;
        Some(words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect())
    }

    #[test]
    fn words_are_cut_at_spaces_outside_of_quotes() {
        assert_eq!(words(" +get  ~a ").unwrap(), ["+get", "~a"]);
        assert_eq!(words(r#""+get" '~a b' ~"c d" "\x41\n\"""#).unwrap(), ["+get", "~a b", "~c d", "A\n\""]);
        assert_eq!(words("").unwrap(), [""; 0]);
        assert_eq!(words("''").unwrap(), [""]);
        for open in ["\"a", "'a", "\"a\"b", "'a'b", "\"a\\"] {
            assert_eq!(words(open), None, "{open}");
        }
    }
}
