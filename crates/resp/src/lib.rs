//! RESP2 and RESP3: requests in, replies out.

#![forbid(unsafe_code)]

mod reply;

pub use reply::Reply;
