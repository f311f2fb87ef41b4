//! RESP2 and RESP3: requests in, replies out.
//!
//! ```
//! use bytes::BytesMut;
//! use steelyard_resp::{encode, Decoder, Limits, Protocol, Reply};
//!
//! let mut decoder = Decoder::new(Limits::default());
//! let mut buffer = BytesMut::from("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
//! let request = decoder.decode(&mut buffer).unwrap().unwrap();
//! assert_eq!(request.args, ["GET", "k"]);
//!
//! let mut out = BytesMut::new();
//! encode(&Reply::Nil, Protocol::Resp2, &mut out);
//! assert_eq!(&out[..], b"$-1\r\n");
//! ```

#![forbid(unsafe_code)]

mod encode;
mod inline;
mod reply;
mod reply_decoder;
mod request;

pub use encode::{double, encode, Protocol};
pub use reply::Reply;
pub use reply_decoder::ReplyDecoder;
pub use request::{encode_request, Decoder, Limits, ProtocolError, Request};
