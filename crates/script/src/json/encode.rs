//! Lua's values as JSON.

use mlua::{Table, Value};

use super::is_null;
use crate::arguments::{as_number, fail, number_text, type_name, Result};
use crate::nested::DEPTH_MAX;
use crate::settings::{Invalid, Settings};
use crate::ENCODED_BYTES_MAX;

/// Returns the text, and how much of it was written if there is an error.
pub(super) fn encode(value: &Value, settings: &Settings) -> (Result<()>, Vec<u8>) {
    let mut encoder = Encoder { out: Vec::new(), settings };
    let result = encoder.value(value, 0);
    (result, encoder.out)
}

struct Encoder<'a> {
    out: Vec<u8>,
    settings: &'a Settings,
}

fn refuse<T>(value: &Value, why: &str) -> Result<T> {
    fail(format!("Cannot serialise {}: {why}", type_name(value)))
}

impl Encoder<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        if self.out.len() > ENCODED_BYTES_MAX {
            return fail("not enough memory");
        }
        match value {
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => self.number(value)?,
            Value::Boolean(value) => self.out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Value::Table(table) => self.table(value, table, depth + 1)?,
            Value::Nil => self.out.extend_from_slice(b"null"),
            other if is_null(other) => self.out.extend_from_slice(b"null"),
            other => return refuse(other, "type not supported"),
        }
        Ok(())
    }

    fn number(&mut self, value: &Value) -> Result<()> {
        let number = as_number(value).unwrap_or_default();
        if !number.is_finite() {
            match self.settings.encode_invalid {
                Invalid::Refuse => return refuse(value, "must not be NaN or Inf"),
                Invalid::Null => {
                    self.out.extend_from_slice(b"null");
                    return Ok(());
                }
                Invalid::Write => {}
            }
        }
        let text = number_text(number, self.settings.precision as usize);
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for &byte in text {
            let escape = match byte {
                b'"' => b'"',
                b'\\' => b'\\',
                b'/' => b'/',
                0x08 => b'b',
                b'\t' => b't',
                b'\n' => b'n',
                0x0c => b'f',
                b'\r' => b'r',
                0..=0x1f | 0x7f => {
                    self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                    continue;
                }
                _ => {
                    self.out.push(byte);
                    continue;
                }
            };
            self.out.extend_from_slice(&[b'\\', escape]);
        }
        self.out.push(b'"');
    }

    /// Returns the length of a table that is an array, and `None` for an object.
    fn array_length(&self, value: &Value, table: &Table) -> Result<Option<i64>> {
        let (mut max, mut items) = (0_i64, 0_i64);
        for pair in table.pairs::<Value, Value>() {
            match as_number(&pair?.0) {
                Some(key) if key >= 1.0 && libm::floor(key) == key && key <= f64::from(i32::MAX) => {
                    max = max.max(key as i64);
                    items += 1;
                }
                _ => return Ok(None),
            }
        }
        let Settings { sparse_ratio, sparse_safe, converts_sparse, .. } = self.settings;
        if *sparse_ratio > 0 && max > items.saturating_mul(*sparse_ratio) && max > *sparse_safe {
            return match converts_sparse {
                true => Ok(None),
                false => refuse(value, "excessively sparse array"),
            };
        }
        Ok((max > 0).then_some(max))
    }

    fn table(&mut self, value: &Value, table: &Table, depth: usize) -> Result<()> {
        if depth as i64 > self.settings.encode_depth_max || depth > DEPTH_MAX {
            return fail(format!("Cannot serialise, excessive nesting ({depth})"));
        }
        match self.array_length(value, table)? {
            Some(length) => {
                self.out.push(b'[');
                for at in 1..=length {
                    if at > 1 {
                        self.out.push(b',');
                    }
                    self.value(&table.raw_get(at)?, depth)?;
                }
                self.out.push(b']');
            }
            None => {
                self.out.push(b'{');
                let mut is_first = true;
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair?;
                    if !std::mem::replace(&mut is_first, false) {
                        self.out.push(b',');
                    }
                    match &key {
                        Value::String(text) => self.string(&text.as_bytes()),
                        Value::Integer(_) | Value::Number(_) => {
                            self.out.push(b'"');
                            self.number(&key)?;
                            self.out.push(b'"');
                        }
                        other => return refuse(other, "table key must be a number or string"),
                    }
                    self.out.push(b':');
                    self.value(&value, depth)?;
                }
                self.out.push(b'}');
            }
        }
        Ok(())
    }
}
