//! The settings of the statistics of commands, with Redis's names.

use super::{invalid, SettingError};
use crate::statistics::slow_log::SlowLogSettings;

/// Maximum number of percentiles that `INFO latencystats` shows.
const PERCENTILES_MAX: usize = 16;

pub const NAMES: [&str; 5] = [
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "latency-monitor-threshold",
    "latency-tracking",
    "latency-tracking-info-percentiles",
];

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
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        match name {
            "slowlog-log-slower-than" => self.slow_log.slower_than = number(value, -1)?,
            "slowlog-max-len" => self.slow_log.max_len = number(value, 0)? as usize,
            "latency-monitor-threshold" => self.latency_threshold_ms = number(value, 0)? as u64,
            "latency-tracking" => match value.to_ascii_lowercase().as_str() {
                "yes" => self.tracks_latency = true,
                "no" => self.tracks_latency = false,
                _ => return invalid("argument must be 'yes' or 'no'"),
            },
            "latency-tracking-info-percentiles" => {
                let parsed = value.split_whitespace().map(str::parse::<f64>);
                let Ok(percentiles) = parsed.collect::<Result<Vec<f64>, _>>() else {
                    return invalid("Invalid latency-tracking-info-percentiles parameters");
                };
                if percentiles.len() > PERCENTILES_MAX {
                    return invalid(&format!("at most {PERCENTILES_MAX} percentiles are shown"));
                }
                if !percentiles.iter().all(|percentile| (0.0..=100.0).contains(percentile)) {
                    return invalid(
                        "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
                    );
                }
                self.percentiles = percentiles;
            }
            _ => return Err(SettingError::Unknown),
        }
        Ok(())
    }
}

/// Parses a number that is at least `least`.
fn number(value: &str, least: i64) -> Result<i64, SettingError> {
    let why = match resp::parse_integer(value.as_bytes()) {
        Some(number) if number >= least => return Ok(number),
        Some(_) => format!("argument must be between {least} and 9223372036854775807 inclusive"),
        None => "argument couldn't be parsed into an integer".to_owned(),
    };
    Err(SettingError::Invalid(why))
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
            assert!(matches!(settings.set(name, value), Err(SettingError::Invalid(_))), "{name} {value}");
        }
        assert!(settings.set("latency-tracking-info-percentiles", "nan").is_err());
        assert!(settings.all().iter().map(|(_, value)| value).eq(values));
    }
}
