//! `client-output-buffer-limit`, of which the class `pubsub` has a meaning here.

use std::time::Duration;

use crate::pubsub::mailbox::OutputLimit;

pub const NAME: &str = "client-output-buffer-limit";

/// Returns the setting as Redis shows it.
pub fn shown(limit: &OutputLimit) -> String {
    let OutputLimit { hard_bytes, soft_bytes, soft_time } = limit;
    format!("normal 0 0 0 slave 0 0 0 pubsub {hard_bytes} {soft_bytes} {}", soft_time.as_secs())
}

/// Returns the limit that a start sets.
///
/// # Errors
/// The text of the error.
pub fn parse_output_limit(value: &str) -> Result<OutputLimit, String> {
    parsed(OutputLimit::default(), value)
}

/// Returns the limit after a change, which names classes with three values each.
///
/// # Errors
/// The text of the error.
pub fn parsed(mut limit: OutputLimit, value: &str) -> Result<OutputLimit, String> {
    let words: Vec<&str> = value.split_whitespace().collect();
    if words.is_empty() || words.len() % 4 != 0 {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    for class in words.chunks(4) {
        let (hard, soft) = (types::parse_size(class[1]), types::parse_size(class[2]));
        let (Ok(hard_bytes), Ok(soft_bytes), Ok(seconds)) = (hard, soft, class[3].parse::<u32>()) else {
            return Err(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.".to_owned()
            );
        };
        match class[0].to_ascii_lowercase().as_str() {
            "pubsub" => {
                let soft_time = Duration::from_secs(u64::from(seconds));
                limit = OutputLimit { hard_bytes, soft_bytes, soft_time };
            }
            "normal" | "slave" | "replica" if hard_bytes == 0 && soft_bytes == 0 => {}
            "normal" | "slave" | "replica" => {
                return Err(
                    "Only the class pubsub has a limit of its own: maxmemory limits all clients together."
                        .to_owned(),
                );
            }
            _ => return Err("Invalid client class specified in buffer limit configuration.".to_owned()),
        }
    }
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_subscribers_is_set_and_shown_and_others_stay_without_limit() {
        let limit = parsed(OutputLimit::default(), "normal 0 0 0 PubSub 1mb 10kb 5").unwrap();
        assert_eq!(shown(&limit), "normal 0 0 0 slave 0 0 0 pubsub 1048576 10240 5");
        assert_eq!(parsed(limit, "replica 0 0 0"), Ok(limit));
        for wrong in ["", "pubsub 1 2", "pubsub x 0 0", "pubsub 1 1 -1", "other 0 0 0", "normal 1 0 0"] {
            assert!(parsed(limit, wrong).is_err(), "{wrong}");
        }
    }
}
