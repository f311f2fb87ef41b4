//! JSON as Lua's values. The order of checks is lua-cjson's, so that errors name the same place.

use mlua::{Lua, Value};

use super::null;
use crate::arguments::{fail, Result};
use crate::nested::DEPTH_MAX;
use crate::settings::Settings;

#[derive(Clone, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(text) => text,
        }
    }
}

struct Parser<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    /// The place of the last token.
    token_at: usize,
    depth: usize,
    settings: &'a Settings,
}

pub(super) fn decode(lua: &Lua, text: &[u8], settings: &Settings) -> Result<Value> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return fail("JSON parser does not support UTF-16 or UTF-32");
    }
    let mut parser = Parser { lua, text, at: 0, token_at: 0, depth: 0, settings };
    let token = parser.token();
    let value = parser.value(token)?;
    match parser.token() {
        Token::End => Ok(value),
        other => parser.expected("the end", &other),
    }
}

impl Parser<'_> {
    /// Returns a byte; 0 behind the end, as in C.
    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn starts_with(&self, word: &str) -> bool {
        self.text[self.at.min(self.text.len())..].starts_with(word.as_bytes())
    }

    fn expected<T>(&self, what: &str, found: &Token) -> Result<T> {
        fail(format!("Expected {what} but found {} at character {}", found.name(), self.token_at + 1))
    }

    fn error(&mut self, text: &'static str) -> Token {
        self.token_at = self.at;
        Token::Error(text)
    }

    fn token(&mut self) -> Token {
        while matches!(self.byte(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.token_at = self.at;
        let single = match self.byte(0) {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            0 => return Token::End,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => {
                if !self.settings.decodes_invalid && self.is_invalid_number() {
                    return self.error("invalid number");
                }
                return self.number();
            }
            b'+' | b'f' | b'i' | b'I' | b'n' | b'N' | b't' => {
                for (word, token) in
                    [("true", Token::Boolean(true)), ("false", Token::Boolean(false)), ("null", Token::Null)]
                {
                    if self.starts_with(word) {
                        self.at += word.len();
                        return token;
                    }
                }
                if self.settings.decodes_invalid && self.is_invalid_number() {
                    return self.number();
                }
                return self.error("invalid token");
            }
            _ => return self.error("invalid token"),
        };
        self.at += 1;
        single
    }

    /// Returns true for what C reads as a number and JSON does not: hexadecimal numbers, leading
    /// zeros, infinity and NaN.
    fn is_invalid_number(&self) -> bool {
        let mut ahead = 0;
        if self.byte(0) == b'+' {
            return true;
        }
        if self.byte(0) == b'-' {
            ahead = 1;
        }
        if self.byte(ahead) == b'0' {
            let next = self.byte(ahead + 1);
            return next | 0x20 == b'x' || next.is_ascii_digit();
        }
        if self.byte(ahead) <= b'9' {
            return false;
        }
        let rest = &self.text[(self.at + ahead).min(self.text.len())..];
        let begins = |word: &[u8]| rest.len() >= 3 && rest[..3].eq_ignore_ascii_case(word);
        begins(b"inf") || begins(b"nan")
    }

    fn number(&mut self) -> Token {
        match c_number(&self.text[self.at..]) {
            Some((value, length)) => {
                self.at += length;
                Token::Number(value)
            }
            None => self.error("invalid number"),
        }
    }

    fn string(&mut self) -> Token {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let plain = match self.byte(0) {
                b'"' => break,
                0 => return self.error("unexpected end of string"),
                b'\\' => match self.byte(1) {
                    b'u' => match self.unicode(&mut out) {
                        true => continue,
                        false => return self.error("invalid unicode escape code"),
                    },
                    b'b' => 0x08,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'f' => 0x0c,
                    b'r' => b'\r',
                    other @ (b'"' | b'\\' | b'/') => other,
                    _ => return self.error("invalid escape code"),
                },
                other => other,
            };
            self.at += if self.byte(0) == b'\\' { 2 } else { 1 };
            out.push(plain);
        }
        self.at += 1;
        Token::String(out)
    }

    fn hex4(&self, ahead: usize) -> Option<u32> {
        (0..4).try_fold(0, |value, at| {
            let digit = char::from(self.byte(ahead + at)).to_digit(16)?;
            Some(value << 4 | digit)
        })
    }

    /// Reads an escape with a code point.
    fn unicode(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(first) = self.hex4(2) else { return false };
        let (code, length) = match first & 0xF800 == 0xD800 {
            false => (first, 6),
            true => {
                if first & 0x400 != 0 || self.byte(6) != b'\\' || self.byte(7) != b'u' {
                    return false;
                }
                match self.hex4(8) {
                    Some(low) if low & 0xFC00 == 0xDC00 => {
                        ((((first & 0x3FF) << 10) | (low & 0x3FF)) + 0x10000, 12)
                    }
                    _ => return false,
                }
            }
        };
        let Some(character) = char::from_u32(code) else { return false };
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        self.at += length;
        true
    }

    fn value(&mut self, token: Token) -> Result<Value> {
        Ok(match token {
            Token::String(text) => Value::String(self.lua.create_string(text)?),
            Token::Number(value) => Value::Number(value),
            Token::Boolean(value) => Value::Boolean(value),
            Token::ObjectBegin => self.object()?,
            Token::ArrayBegin => self.array()?,
            Token::Null => null(),
            other => return self.expected("value", &other),
        })
    }

    fn descend(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth as i64 > self.settings.decode_depth_max || self.depth > DEPTH_MAX {
            let text = "Found too many nested data structures";
            return fail(format!("{text} ({}) at character {}", self.depth, self.at));
        }
        Ok(())
    }

    fn object(&mut self) -> Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.token();
        if token != Token::ObjectEnd {
            loop {
                let Token::String(key) = token else { return self.expected("object key string", &token) };
                let colon = self.token();
                if colon != Token::Colon {
                    return self.expected("colon", &colon);
                }
                let next = self.token();
                let value = self.value(next)?;
                table.raw_set(self.lua.create_string(key)?, value)?;
                match self.token() {
                    Token::ObjectEnd => break,
                    Token::Comma => token = self.token(),
                    other => return self.expected("comma or object end", &other),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn array(&mut self) -> Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.token();
        if token != Token::ArrayEnd {
            for at in 1_i64.. {
                let value = self.value(token)?;
                table.raw_set(at, value)?;
                match self.token() {
                    Token::ArrayEnd => break,
                    Token::Comma => token = self.token(),
                    other => return self.expected("comma or array end", &other),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }
}

/// Reads a number as C's `strtod` and returns its length.
fn c_number(text: &[u8]) -> Option<(f64, usize)> {
    let byte = |at: usize| text.get(at).copied().unwrap_or(0);
    let mut at = usize::from(matches!(byte(0), b'-' | b'+'));
    let sign = if byte(0) == b'-' { -1.0 } else { 1.0 };
    let word = |at: usize, word: &[u8]| {
        text.len() >= at + word.len() && text[at..at + word.len()].eq_ignore_ascii_case(word)
    };
    if word(at, b"infinity") {
        return Some((sign * f64::INFINITY, at + 8));
    }
    if word(at, b"inf") {
        return Some((sign * f64::INFINITY, at + 3));
    }
    if word(at, b"nan") {
        return Some((f64::NAN.copysign(sign), at + 3));
    }
    if byte(at) == b'0' && byte(at + 1) | 0x20 == b'x' {
        if let Some((value, length)) = hexadecimal(&text[at + 2..]) {
            return Some((sign * value, at + 2 + length));
        }
        return Some((sign * 0.0, at + 1));
    }
    let begin = at;
    let digits = |at: &mut usize| {
        let from = *at;
        while byte(*at).is_ascii_digit() {
            *at += 1;
        }
        *at - from
    };
    let mut count = digits(&mut at);
    if byte(at) == b'.' {
        let mut after = at + 1;
        let decimals = digits(&mut after);
        if count + decimals > 0 {
            at = after;
            count += decimals;
        }
    }
    if count == 0 {
        return None;
    }
    if byte(at) | 0x20 == b'e' {
        let mut after = at + 1 + usize::from(matches!(byte(at + 1), b'-' | b'+'));
        if digits(&mut after) > 0 {
            at = after;
        }
    }
    let value: f64 = std::str::from_utf8(&text[begin..at]).ok()?.parse().ok()?;
    Some((sign * value, at))
}

/// Reads the digits of a hexadecimal number.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let byte = |at: usize| text.get(at).copied().unwrap_or(0);
    let (mut mantissa, mut scale, mut at, mut count) = (0.0_f64, 0_i32, 0, 0);
    let mut is_behind_point = false;
    loop {
        if let Some(digit) = char::from(byte(at)).to_digit(16) {
            mantissa = mantissa * 16.0 + f64::from(digit);
            scale -= if is_behind_point { 4 } else { 0 };
            count += 1;
        } else if byte(at) == b'.' && !is_behind_point {
            is_behind_point = true;
        } else {
            break;
        }
        at += 1;
    }
    if count == 0 {
        return None;
    }
    if byte(at) | 0x20 == b'p' {
        let is_negative = byte(at + 1) == b'-';
        let from = at + 1 + usize::from(matches!(byte(at + 1), b'-' | b'+'));
        let mut after = from;
        let mut exponent = 0_i32;
        while byte(after).is_ascii_digit() {
            exponent = exponent.saturating_mul(10).saturating_add(i32::from(byte(after) - b'0'));
            after += 1;
        }
        if after > from {
            at = after;
            scale = scale.saturating_add(if is_negative { -exponent } else { exponent });
        }
    }
    Some((libm::ldexp(mantissa, scale), at))
}
