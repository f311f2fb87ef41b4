//! The functions of `math` whose results would differ between C libraries, and Redis's random
//! numbers.

use mlua::{MultiValue, Table, Value};

use crate::arguments::{c_integer, fail, one, Arguments, Failure, Result};
use crate::builder::Builder;
use crate::random::Random;

type Function = fn(f64) -> f64;

const FUNCTIONS: [(&str, Function); 13] = [
    ("sin", libm::sin),
    ("cos", libm::cos),
    ("tan", libm::tan),
    ("sinh", libm::sinh),
    ("cosh", libm::cosh),
    ("tanh", libm::tanh),
    ("asin", libm::asin),
    ("acos", libm::acos),
    ("atan", libm::atan),
    ("log", libm::log),
    ("log10", libm::log10),
    ("exp", libm::exp),
    ("sqrt", libm::sqrt),
];

/// Returns an argument as C's `int`.
fn int(args: &Arguments<'_>, number: usize) -> Result<i32> {
    Ok(c_integer(args.number(number)?) as i32)
}

fn random(args: &Arguments<'_>, random: &mut Random) -> Result {
    let drawn = random.next();
    let empty = |number| Err(Failure::Argument(number, "interval is empty".into()));
    let number = match args.len() {
        0 => drawn,
        1 => {
            let upper = int(args, 1)?;
            if upper < 1 {
                return empty(1);
            }
            libm::floor(drawn * f64::from(upper)) + 1.0
        }
        2 => {
            let (lower, upper) = (int(args, 1)?, int(args, 2)?);
            if lower > upper {
                return empty(2);
            }
            // Redis calculates the width as an int.
            let width = upper.wrapping_sub(lower).wrapping_add(1);
            libm::floor(drawn * f64::from(width)) + f64::from(lower)
        }
        _ => return fail("wrong number of arguments"),
    };
    one(Value::Number(number))
}

/// Replaces functions of `math`.
pub(crate) fn replace(math: &Table, builder: &Builder<'_>) -> mlua::Result<()> {
    for (name, function) in FUNCTIONS {
        builder.add(math, name, move |args| one(Value::Number(function(args.number(1)?))))?;
    }
    builder.add(math, "atan2", |args| one(Value::Number(libm::atan2(args.number(1)?, args.number(2)?))))?;
    let kept = builder.kept.clone();
    builder.add(math, "random", move |args| random(&args, &mut kept.random.borrow_mut()))?;
    let kept = builder.kept.clone();
    builder.add(math, "randomseed", move |args| {
        *kept.random.borrow_mut() = Random::new(int(&args, 1)?);
        Ok(MultiValue::new())
    })
}
