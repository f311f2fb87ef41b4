//! The settings of `cjson`, which a script can change.

use crate::nested::DEPTH_MAX;

/// The largest precision of numbers, in digits.
pub(crate) const PRECISION_MAX: i64 = 14;

/// The settings of `cjson`. They last as long as the script that makes them.
#[derive(Clone)]
pub(crate) struct Settings {
    pub converts_sparse: bool,
    pub sparse_ratio: i64,
    pub sparse_safe: i64,
    pub encode_depth_max: i64,
    pub decode_depth_max: i64,
    pub precision: i64,
    pub encode_invalid: Invalid,
    pub decodes_invalid: bool,
    pub keeps_buffer: bool,
}

/// The treatment of numbers that JSON cannot represent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Invalid {
    Refuse,
    Write,
    Null,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            converts_sparse: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: DEPTH_MAX as i64,
            decode_depth_max: DEPTH_MAX as i64,
            precision: PRECISION_MAX,
            encode_invalid: Invalid::Refuse,
            decodes_invalid: true,
            keeps_buffer: true,
        }
    }
}
