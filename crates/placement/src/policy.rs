//! The placement policies and their names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The policy that decides the layout of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// ALOR's baseline ED: every live store holds the same amount of data and leads the same number
    /// of user regions.
    #[default]
    Even,
    /// ALOR's LMO: each region is led by its most capable live peer. Data is placed as under
    /// `even`.
    LeaderOnly,
    /// ALOR: leaders as under `leader-only`, data in proportion to the write speeds of the stores.
    Alor,
    /// Steelyard's own policy: minimizes the load of the busiest store, then the time that writes
    /// wait, both by measured rates.
    Adaptive,
}

impl Policy {
    pub const ALL: [Policy; 4] = [Policy::Even, Policy::LeaderOnly, Policy::Alor, Policy::Adaptive];

    pub fn name(self) -> &'static str {
        match self {
            Policy::Even => "even",
            Policy::LeaderOnly => "leader-only",
            Policy::Alor => "alor",
            Policy::Adaptive => "adaptive",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy '{name}': the policies are {}", Policy::ALL.map(Policy::name).join(", "))]
pub struct UnknownPolicy {
    pub name: String,
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Policy, UnknownPolicy> {
        let known = Policy::ALL.into_iter().find(|policy| policy.name() == name);
        known.ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_an_unknown_one_lists_the_known() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        let error = "best".parse::<Policy>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown policy 'best': the policies are even, leader-only, alor, adaptive"
        );
    }
}
