//! The content that a batch has written into a row.

use std::any::Any;
use std::cell::OnceCell;
use std::rc::Rc;

use bytes::Bytes;

/// A value that a batch encodes when it is read, or when the batch ends. So a row that many
/// commands of a batch change is decoded and encoded once.
pub trait Unencoded: Any {
    /// Returns the row's value.
    fn encode(&self) -> Bytes;
}

/// The value of a row, as a batch sees it.
pub enum Stored {
    Encoded(Bytes),
    Unencoded(Rc<dyn Unencoded>),
}

/// The content that a batch gives a row.
#[derive(Clone)]
pub(crate) enum Content {
    /// The value, or `None` if the row is deleted.
    Encoded(Option<Bytes>),
    /// Most rows of most batches are encoded, so this takes no more room than they do.
    Unencoded(Box<UnencodedContent>),
    /// The value was taken out in order to change it.
    Taken,
}

#[derive(Clone)]
pub(crate) struct UnencodedContent {
    value: Rc<dyn Unencoded>,
    /// The encoded value, once it was asked for. Never `None`.
    encoded: OnceCell<Option<Bytes>>,
}

impl Content {
    pub fn unencoded(value: Rc<dyn Unencoded>) -> Content {
        Content::Unencoded(Box::new(UnencodedContent { value, encoded: OnceCell::new() }))
    }

    /// Returns the row's value, or `None` if the row is deleted.
    pub fn value(&self) -> &Option<Bytes> {
        match self {
            Content::Encoded(value) => value,
            Content::Unencoded(content) => content.encoded.get_or_init(|| Some(content.value.encode())),
            Content::Taken => &None,
        }
    }

    pub fn into_value(self) -> Option<Bytes> {
        match self {
            Content::Encoded(value) => value,
            Content::Unencoded(content) => {
                let UnencodedContent { value, encoded } = *content;
                encoded.into_inner().unwrap_or_else(|| Some(value.encode()))
            }
            Content::Taken => None,
        }
    }

    pub fn stored(&self) -> Option<Stored> {
        match self {
            Content::Encoded(value) => value.clone().map(Stored::Encoded),
            Content::Unencoded(content) => Some(Stored::Unencoded(content.value.clone())),
            Content::Taken => None,
        }
    }

    /// Takes an unencoded value out.
    pub fn take(&mut self) -> Option<Rc<dyn Unencoded>> {
        match std::mem::replace(self, Content::Taken) {
            Content::Unencoded(content) => Some(content.value),
            other => {
                *self = other;
                None
            }
        }
    }
}
