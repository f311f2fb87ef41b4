//! A store that is not who it was.
