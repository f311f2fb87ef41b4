//! `client-output-buffer-limit`: the limits of what waits for a client that does not read.
//!
//! They are in one place, [`ClientMemory`](crate::client_memory::ClientMemory), which the loops
//! that write replies and the threads that publish messages share.

use std::time::{Duration, Instant};

pub const NAME: &str = "client-output-buffer-limit";

/// The limit of a class of clients. Zero bytes mean no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimit {
    pub hard_bytes: u64,
    pub soft_bytes: u64,
    /// Time from the soft limit on after which the client is disconnected.
    pub soft_time: Duration,
}

/// The limits of all classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// Replies to clients without subscriptions, as far as their sockets do not take them.
    pub normal: OutputLimit,
    /// It has no effect, because no replica of Redis connects. It is kept for tools that set it.
    pub replica: OutputLimit,
    /// Messages for a subscriber, for `MONITOR` and for client-side caching.
    pub pubsub: OutputLimit,
}

impl OutputLimit {
    pub const NONE: OutputLimit = OutputLimit { hard_bytes: 0, soft_bytes: 0, soft_time: Duration::ZERO };

    const fn of(hard_mib: u64, soft_mib: u64, soft_s: u64) -> OutputLimit {
        let (hard_bytes, soft_bytes) = (hard_mib << 20, soft_mib << 20);
        OutputLimit { hard_bytes, soft_bytes, soft_time: Duration::from_secs(soft_s) }
    }

    pub fn is_none(&self) -> bool {
        self.hard_bytes == 0 && self.soft_bytes == 0
    }

    /// Returns true if `bytes` exceed the limit. `over_soft_since` is the time since when they have
    /// exceeded the soft limit.
    pub fn is_exceeded(
        &self,
        bytes: u64,
        now: impl FnOnce() -> Instant,
        over_soft_since: &mut Option<Instant>,
    ) -> bool {
        if self.hard_bytes > 0 && bytes >= self.hard_bytes {
            return true;
        }
        if self.soft_bytes == 0 || bytes < self.soft_bytes {
            *over_soft_since = None;
            return false;
        }
        let now = now();
        now.saturating_duration_since(*over_soft_since.get_or_insert(now)) > self.soft_time
    }
}

impl Default for OutputLimits {
    fn default() -> OutputLimits {
        OutputLimits {
            normal: OutputLimit::NONE,
            replica: OutputLimit::of(256, 64, 60),
            pubsub: OutputLimit::of(32, 8, 60),
        }
    }
}

impl OutputLimits {
    /// Returns the setting as Redis shows it.
    pub fn shown(&self) -> String {
        let of_class = |class: &str, limit: &OutputLimit| {
            let OutputLimit { hard_bytes, soft_bytes, soft_time } = limit;
            format!("{class} {hard_bytes} {soft_bytes} {}", soft_time.as_secs())
        };
        let classes = [
            of_class("normal", &self.normal),
            of_class("slave", &self.replica),
            of_class("pubsub", &self.pubsub),
        ];
        classes.join(" ")
    }

    /// Returns the limits after a change, which names classes with three values each.
    ///
    /// # Errors
    /// The text of the error.
    pub fn changed(mut self, value: &str) -> Result<OutputLimits, String> {
        let words: Vec<&str> = value.split_whitespace().collect();
        if words.len() % 4 != 0 {
            return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
        }
        for class in words.chunks(4) {
            let limit = match class[0].to_ascii_lowercase().as_str() {
                "normal" => &mut self.normal,
                "slave" | "replica" => &mut self.replica,
                "pubsub" => &mut self.pubsub,
                _ => return Err("Invalid client class specified in buffer limit configuration.".to_owned()),
            };
            let (hard, soft) = (types::parse_size(class[1]), types::parse_size(class[2]));
            let (Ok(hard_bytes), Ok(soft_bytes), Ok(seconds)) = (hard, soft, class[3].parse::<u32>()) else {
                return Err(
                    "Error in hard, soft or soft_seconds setting in buffer limit configuration.".to_owned()
                );
            };
            let soft_time = Duration::from_secs(u64::from(seconds));
            *limit = OutputLimit { hard_bytes, soft_bytes, soft_time };
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_set_and_shown_as_in_redis_and_a_wrong_value_changes_none() {
        let limits = OutputLimits::default();
        assert_eq!(limits.shown(), "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60");
        let limits = limits.changed("normal 1mb 10kb 5 PubSub 2mb 0 7 replica 1 2 3").unwrap();
        assert_eq!(limits.shown(), "normal 1048576 10240 5 slave 1 2 3 pubsub 2097152 0 7");
        assert_eq!(limits.changed(""), Ok(limits));
        for wrong in
            ["pubsub 1 2", "pubsub x 0 0", "normal 1 1 -1", "master 0 0 0", "normal 1 1 1 other 0 0 0"]
        {
            assert!(limits.changed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_client_may_exceed_the_soft_limit_for_its_time_and_the_hard_one_never() {
        let limit = OutputLimit { hard_bytes: 100, soft_bytes: 50, soft_time: Duration::from_secs(2) };
        let began = Instant::now();
        let mut since = None;
        let mut at = |seconds: u64, bytes: u64| {
            limit.is_exceeded(bytes, || began + Duration::from_secs(seconds), &mut since)
        };
        assert!(!at(0, 49) && !at(1, 50) && !at(2, 99), "the soft limit is reached after 1 s");
        assert!(at(2, 100));
        assert!(!at(2, 10) && !at(3, 60) && !at(4, 60), "the time begins again");
        assert!(!at(5, 60) && at(6, 60));
        let mut since = None;
        assert!(!OutputLimit::NONE.is_exceeded(u64::MAX, || began, &mut since));
    }
}
