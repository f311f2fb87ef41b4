//! Arguments of library functions, and the results of functions of the host.
//!
//! A function of the host is wrapped by Lua's `control` (`vendor/lua-src`), which turns its first
//! result into an ordinary return or an error. An error of `mlua` itself would reach the script as
//! an object of a type that no script knows.

use mlua::{Lua, MultiValue, Value};

/// The reason why a library function fails.
pub(crate) enum Failure {
    /// An error with this text, behind the place in the script.
    Error(String),
    /// An error with this text alone.
    Plain(&'static str),
    /// An error with this value.
    Value(Value),
    /// Something is wrong with the argument of this number.
    Argument(usize, String),
    /// An error of the library: no memory is left.
    Lua(mlua::Error),
}

impl From<mlua::Error> for Failure {
    fn from(error: mlua::Error) -> Failure {
        Failure::Lua(error)
    }
}

pub(crate) type Result<T = MultiValue> = std::result::Result<T, Failure>;

pub(crate) fn fail<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::Error(text.into()))
}

/// Converts the result of a function for the wrapper.
pub(crate) fn give(lua: &Lua, result: Result) -> mlua::Result<MultiValue> {
    let values = match result {
        Ok(mut values) => {
            values.push_front(Value::Boolean(true));
            return Ok(values);
        }
        Err(Failure::Error(text)) => {
            [Value::Boolean(false), Value::String(lua.create_string(text)?)].to_vec()
        }
        Err(Failure::Plain(text)) => {
            let text = Value::String(lua.create_string(text)?);
            vec![Value::Boolean(false), text, Value::Boolean(true)]
        }
        Err(Failure::Value(value)) => vec![Value::Boolean(false), value],
        Err(Failure::Argument(number, text)) => {
            let number = Value::Integer(number as i64);
            vec![Value::Nil, number, Value::String(lua.create_string(text)?)]
        }
        Err(Failure::Lua(error)) => return Err(error),
    };
    Ok(MultiValue::from_vec(values))
}

pub(crate) fn one(value: Value) -> Result {
    Ok(MultiValue::from_vec(vec![value]))
}

/// The arguments of one call.
pub(crate) struct Arguments<'a> {
    pub lua: &'a Lua,
    pub values: MultiValue,
}

impl Arguments<'_> {
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns an argument, counted from 1.
    pub fn get(&self, number: usize) -> Option<&Value> {
        self.values.get(number - 1)
    }

    fn wrong_type<T>(&self, number: usize, expected: &str) -> Result<T> {
        let got = self.get(number).map_or("no value", type_name);
        Err(Failure::Argument(number, format!("{expected} expected, got {got}")))
    }

    /// Returns a number, or a string that Lua converts to one.
    pub fn number(&self, number: usize) -> Result<f64> {
        match self.get(number) {
            Some(Value::Integer(value)) => Ok(*value as f64),
            Some(Value::Number(value)) => Ok(*value),
            Some(value @ Value::String(_)) => match self.lua.coerce_number(value.clone())? {
                Some(value) => Ok(value),
                None => self.wrong_type(number, "number"),
            },
            _ => self.wrong_type(number, "number"),
        }
    }

    /// Returns a number without its fraction, as C converts it.
    pub fn integer(&self, number: usize) -> Result<i64> {
        Ok(c_integer(self.number(number)?))
    }

    /// Returns the bytes of a string or a number.
    pub fn bytes(&self, number: usize) -> Result<mlua::String> {
        match self.get(number) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(value @ (Value::Integer(_) | Value::Number(_))) => {
                match self.lua.coerce_string(value.clone())? {
                    Some(text) => Ok(text),
                    None => self.wrong_type(number, "string"),
                }
            }
            _ => self.wrong_type(number, "string"),
        }
    }

    pub fn is_none_or_nil(&self, number: usize) -> bool {
        matches!(self.get(number), None | Some(Value::Nil))
    }
}

/// Converts a number to an integer as C does on the machines that Redis knows: numbers out of range
/// give the smallest integer.
pub(crate) fn c_integer(value: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match (-LIMIT..LIMIT).contains(&value) {
        true => value as i64,
        false => i64::MIN,
    }
}

/// Returns the type's name in Lua.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::LightUserData(_) | Value::UserData(_) | Value::Error(_) => "userdata",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}

/// Returns a value's number, if it is one.
pub(crate) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Number(value) => Some(*value),
        _ => None,
    }
}

/// Returns a number as Lua writes it: `%.14g`.
pub(crate) fn number_text(value: f64, precision: usize) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    // C's %g: the exponent of the rounded number decides about the form.
    let precision = precision.max(1);
    let scientific = format!("{:.*e}", precision - 1, value);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(digits), exponent.abs());
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.decimals$}"))
}
