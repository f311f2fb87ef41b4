//! Errors of admin requests, here and between stores.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::AdminError;

pub fn refuse(status: u16, message: impl Into<String>) -> AdminError {
    AdminError { status, message: message.into() }
}

#[derive(Serialize, Deserialize)]
struct WireError {
    status: u16,
    message: String,
}

pub fn read_error(body: &[u8]) -> AdminError {
    match serde_json::from_slice::<WireError>(body) {
        Ok(error) => refuse(error.status, error.message),
        Err(_) => refuse(502, String::from_utf8_lossy(body)),
    }
}

pub fn encode_error(error: AdminError) -> Bytes {
    let wire = WireError { status: error.status, message: error.message };
    serde_json::to_vec(&wire).expect("plain data").into()
}
