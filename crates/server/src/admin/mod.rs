//! The admin endpoint: a JSON API, Prometheus metrics and a health check over HTTP, on loopback by default.

mod backend;
mod http;

pub use backend::*;
pub use http::serve;
