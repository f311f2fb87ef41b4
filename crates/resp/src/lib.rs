//! RESP2 and RESP3: requests in, replies out, and the same again from the client's side.
//!
//! A server feeds what it receives to a [`Decoder`] and writes with [`encode`]; a client writes with
//! [`encode_request`] and reads with a [`ReplyDecoder`]. Both decoders are incremental: they keep their place in
//! what has only partly arrived, so a byte is looked at a bounded number of times however it was cut into packets,
//! and the result never depends on the cuts. Nothing is allocated because a peer *declared* a length; memory
//! follows what has arrived. Once a decoder has failed it stays failed, for the stream has no next boundary.

#![forbid(unsafe_code)]

mod double;
mod encode;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod inline;
mod length;
mod limits;
mod receive_buffer;
mod reply;
mod reply_decoder;
mod request;

pub use encode::{encode, encode_request, Protocol};
pub use error::ProtocolError;
pub use limits::{Limits, ReplyLimits};
pub use reply::Reply;
pub use reply_decoder::ReplyDecoder;
pub use request::{compact, Decoder, Request};
