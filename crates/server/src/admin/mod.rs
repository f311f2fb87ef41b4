//! The admin endpoint: a JSON API, Prometheus metrics and a health check over HTTP, on loopback by default.

mod backend;

pub use backend::*;
