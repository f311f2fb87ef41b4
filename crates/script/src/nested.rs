//! The depth of nested values that the libraries read and write.

/// Maximum nesting. Deeper settings of `cjson` have no effect, so that no input exhausts a stack.
pub(crate) const DEPTH_MAX: usize = 1000;
