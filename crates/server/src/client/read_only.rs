//! The arguments of `READONLY`.

use std::time::Duration;

use bytes::Bytes;
use node::bounded_staleness::MaxLag;
use resp::Reply;

use crate::settings::{weak_read_max_lag, WEAK_READ_MAX_LAG_RANGE};

/// Returns the bound in `READONLY [MAXLAG milliseconds [MAXENTRIES count]]`, or `default` if the
/// command names none. `MAXLAG -1` stands for no bound.
pub fn max_lag(args: &[Bytes], default: Option<Duration>) -> Result<Option<MaxLag>, Reply> {
    let is = |word: &Bytes, name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let number = |text: &Bytes| resp::parse_integer(text).ok_or_else(not_an_integer);
    let (lag, entries) = match &args[1..] {
        [] => (default, None),
        [name, ms] if is(name, "maxlag") => (lag_of(number(ms)?)?, None),
        [name, ms, limit, entries] if is(name, "maxlag") && is(limit, "maxentries") => {
            let entries = u64::try_from(number(entries)?).map_err(|_| not_an_integer())?;
            let lag = lag_of(number(ms)?)?;
            // Without a time the copy could not know how many entries it lacks.
            (
                Some(lag.ok_or_else(|| Reply::error("ERR MAXENTRIES needs a MAXLAG of at least 0"))?),
                Some(entries),
            )
        }
        _ => return Err(Reply::error("ERR syntax error")),
    };
    Ok(lag.map(|lag| MaxLag { nanos: u64::try_from(lag.as_nanos()).unwrap_or(u64::MAX), entries }))
}

fn lag_of(ms: i64) -> Result<Option<Duration>, Reply> {
    weak_read_max_lag(ms).ok_or_else(|| Reply::error(format!("ERR MAXLAG must be {WEAK_READ_MAX_LAG_RANGE}")))
}

fn not_an_integer() -> Reply {
    Reply::error("ERR value is not an integer or out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str, default: Option<Duration>) -> Result<Option<MaxLag>, String> {
        let args: Vec<Bytes> = line.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
        max_lag(&args, default).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn the_bound_comes_from_the_command_or_from_the_settings() {
        let max = |ms: u64, entries| Ok(Some(MaxLag { nanos: ms * 1_000_000, entries }));
        let second = Some(Duration::from_secs(1));
        assert_eq!(parse("READONLY", None), Ok(None));
        assert_eq!(parse("READONLY", second), max(1000, None));
        assert_eq!(parse("READONLY MAXLAG 0", second), max(0, None));
        assert_eq!(parse("readonly maxlag 20 maxentries 7", None), max(20, Some(7)));
        assert_eq!(parse("READONLY MAXLAG -1", second), Ok(None));
    }

    #[test]
    fn bad_arguments_get_an_error_and_set_nothing() {
        for (line, says) in [
            ("READONLY 5", "syntax error"),
            ("READONLY MAXLAG", "syntax error"),
            ("READONLY MAXENTRIES 5", "syntax error"),
            ("READONLY MAXLAG 5 MAXENTRIES", "syntax error"),
            ("READONLY MAXLAG 5 MAXLAG 5", "syntax error"),
            ("READONLY MAXLAG 1s", "not an integer"),
            ("READONLY MAXLAG -2", "between -1 and 4294967295"),
            ("READONLY MAXLAG 5 MAXENTRIES -1", "not an integer or out of range"),
            ("READONLY MAXLAG -1 MAXENTRIES 5", "MAXENTRIES needs a MAXLAG"),
        ] {
            let error = parse(line, None).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
