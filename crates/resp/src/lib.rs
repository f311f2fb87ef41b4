//! Encoders and decoders of RESP2 and RESP3, for the server's and the client's side.
//!
//! A server feeds received bytes to a [`Decoder`] and writes replies with [`encode`]. A client
//! writes with [`encode_request`] and reads with a [`ReplyDecoder`].
//!
//! Both decoders are incremental. They remember their position in a message that has arrived in
//! part, so each byte is examined a bounded number of times, and the result does not depend on how
//! the stream was split into packets. A decoder allocates memory in proportion to the bytes
//! received, never to a length that the peer *declared*. A decoder that has failed stays failed,
//! because the next message boundary is unknown.

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

pub use double::double_text;
pub use encode::{
    encode, encode_array_length, encode_bulk, encode_bulk_length, encode_push_length, encode_request,
    Protocol,
};
pub use error::ProtocolError;
pub use inline::split_words;
pub use length::parse_integer;
pub use limits::{Limits, ReplyLimits};
pub use reply::Reply;
pub use reply_decoder::ReplyDecoder;
pub use request::{compact, Decoder, Request};
