//! The settings of the statistics of commands, with Redis's names.

/// Maximum number of percentiles that `INFO latencystats` shows.
const PERCENTILES_MAX: usize = 16;

pub const NAMES: [&str; 5] = [
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "latency-monitor-threshold",
    "latency-tracking",
    "latency-tracking-info-percentiles",
];

/// The settings of the slow log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLogSettings {
    /// The shortest time of a command in the log, in microseconds. Negative: no command is logged.
    pub slower_than: i64,
    /// Maximum number of entries.
    pub max_len: usize,
}

impl Default for SlowLogSettings {
    fn default() -> SlowLogSettings {
        SlowLogSettings { slower_than: 10_000, max_len: 128 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct StatisticsSettings {
    pub slow_log: SlowLogSettings,
    /// The shortest time in milliseconds that `LATENCY` shows; 0 for none.
    pub latency_threshold_ms: u64,
    /// True if the times of commands are recorded as histograms.
    pub tracks_latency: bool,
    /// The percentiles that `INFO latencystats` shows.
    pub percentiles: Vec<f64>,
}

impl Default for StatisticsSettings {
    fn default() -> StatisticsSettings {
        StatisticsSettings {
            slow_log: SlowLogSettings::default(),
            latency_threshold_ms: 0,
            tracks_latency: true,
            percentiles: vec![50.0, 99.0, 99.9],
        }
    }
}

impl StatisticsSettings {
    pub fn all(&self) -> [(&'static str, String); 5] {
        let percentiles: Vec<String> = self.percentiles.iter().map(f64::to_string).collect();
        let tracking = if self.tracks_latency { "yes" } else { "no" };
        let values = [
            self.slow_log.slower_than.to_string(),
            self.slow_log.max_len.to_string(),
            self.latency_threshold_ms.to_string(),
            tracking.to_owned(),
            percentiles.join(" "),
        ];
        let mut values = values.into_iter();
        NAMES.map(|name| (name, values.next().unwrap_or_default()))
    }

    /// Sets one of [`NAMES`].
    ///
    /// # Errors
    /// The text of the error.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "slowlog-log-slower-than" => self.slow_log.slower_than = number(value, -1)?,
            "slowlog-max-len" => self.slow_log.max_len = number(value, 0)? as usize,
            "latency-monitor-threshold" => self.latency_threshold_ms = number(value, 0)? as u64,
            "latency-tracking" => match value.to_ascii_lowercase().as_str() {
                "yes" => self.tracks_latency = true,
                "no" => self.tracks_latency = false,
                _ => return Err("argument must be 'yes' or 'no'".to_owned()),
            },
            "latency-tracking-info-percentiles" => {
                let parsed = value.split_whitespace().map(str::parse::<f64>);
                let Ok(percentiles) = parsed.collect::<Result<Vec<f64>, _>>() else {
                    return Err("Invalid latency-tracking-info-percentiles parameters".to_owned());
                };
                if percentiles.len() > PERCENTILES_MAX {
                    return Err(format!("at most {PERCENTILES_MAX} percentiles are shown"));
                }
                if !percentiles.iter().all(|percentile| (0.0..=100.0).contains(percentile)) {
                    return Err(
                        "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
                            .to_owned(),
                    );
                }
                self.percentiles = percentiles;
            }
            _ => return Err("this is no such setting".to_owned()),
        }
        Ok(())
    }
}

/// Parses a number that is at least `least`.
fn number(value: &str, least: i64) -> Result<i64, String> {
    match resp::parse_integer(value.as_bytes()) {
        Some(number) if number >= least => Ok(number),
        Some(_) => Err(format!("argument must be between {least} and 9223372036854775807 inclusive")),
        None => Err("argument couldn't be parsed into an integer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_shown_as_it_was_set_and_a_bad_value_changes_nothing() {
        let mut settings = StatisticsSettings::default();
        let defaults = ["10000", "128", "0", "yes", "50 99 99.9"];
        assert!(settings.all().iter().map(|(_, value)| value).eq(defaults));
        let values = ["-1", "0", "9223372036854775807", "no", "0 12.5"];
        for (name, value) in NAMES.iter().zip(values) {
            assert_eq!(settings.set(name, value), Ok(()));
        }
        assert!(settings.all().iter().map(|(_, value)| value).eq(values));
        let bad = ["-2", "-1", "1s", "perhaps", "101"];
        for (name, value) in NAMES.iter().zip(bad) {
            assert!(settings.set(name, value).is_err(), "{name} {value}");
        }
        assert!(settings.set("latency-tracking-info-percentiles", "nan").is_err());
        assert!(settings.all().iter().map(|(_, value)| value).eq(values));
    }
}
