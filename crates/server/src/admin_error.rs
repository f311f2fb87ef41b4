//! Errors of admin requests, on this store and between stores.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The failure of an admin request, as an HTTP status and a sentence.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AdminError {
    pub status: u16,
    pub message: String,
}

pub fn refuse(status: u16, message: impl Into<String>) -> AdminError {
    AdminError { status, message: message.into() }
}

pub fn read_error(body: &[u8]) -> AdminError {
    serde_json::from_slice(body).unwrap_or_else(|_| refuse(502, String::from_utf8_lossy(body)))
}

pub fn encode_error(error: AdminError) -> Bytes {
    serde_json::to_vec(&error).expect("plain data").into()
}
