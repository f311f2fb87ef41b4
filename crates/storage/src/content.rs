//! What a batch has written into a row.

use std::any::Any;
use std::cell::OnceCell;
use std::rc::Rc;

use bytes::Bytes;

/// A value that a batch encodes when it is read, or when the batch ends. So a row that many commands
/// of a batch change is decoded and encoded once.
pub trait Unencoded: Any {
    /// Returns the row's value.
    fn encode(&self) -> Bytes;
}

/// The value of a row, as a batch sees it.
#[derive(Clone)]
pub enum Stored {
    Encoded(Bytes),
    Unencoded(Rc<dyn Unencoded>),
}

impl Stored {
    pub fn encoded(self) -> Bytes {
        match self {
            Stored::Encoded(value) => value,
            Stored::Unencoded(value) => value.encode(),
        }
    }
}

/// The content that a batch gives a row.
#[derive(Clone)]
pub(crate) enum Content {
    /// The value, or `None` if the row is deleted.
    Encoded(Option<Bytes>),
    Unencoded {
        value: Rc<dyn Unencoded>,
        /// The encoded value, once it was asked for.
        encoded: OnceCell<Option<Bytes>>,
    },
}

impl Content {
    pub fn unencoded(value: Rc<dyn Unencoded>) -> Content {
        Content::Unencoded { value, encoded: OnceCell::new() }
    }

    /// Returns the row's value, or `None` if the row is deleted.
    pub fn value(&self) -> &Option<Bytes> {
        match self {
            Content::Encoded(value) => value,
            Content::Unencoded { value, encoded } => encoded.get_or_init(|| Some(value.encode())),
        }
    }

    pub fn into_value(self) -> Option<Bytes> {
        match self {
            Content::Encoded(value) => value,
            Content::Unencoded { value, encoded } => {
                encoded.into_inner().unwrap_or_else(|| Some(value.encode()))
            }
        }
    }

    pub fn stored(&self) -> Option<Stored> {
        match self {
            Content::Encoded(value) => value.clone().map(Stored::Encoded),
            Content::Unencoded { value, .. } => Some(Stored::Unencoded(value.clone())),
        }
    }
}
