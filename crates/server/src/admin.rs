//! The admin endpoint: a JSON API, Prometheus metrics and a health check over HTTP, on loopback by
//! default.

mod backend;
mod http;
mod refusal;

pub use backend::*;
pub use http::serve;
pub(crate) use refusal::{encode_error, read_error, refuse};
