//! A merge of written rows with the rows of the layer below.

use std::iter::Peekable;
use std::ops::ControlFlow;

use bytes::Bytes;

use crate::{Result, Visit};

/// A written row: its key, and its value or `None` if it is deleted.
pub(crate) type Written<'a> = (&'a Bytes, &'a Option<Bytes>);

/// Visits two ascending sequences of rows merged in ascending order: the rows of `written` that
/// have a value, and the rows of `below` that are neither in `written` nor hidden. Stops when
/// `visit` breaks.
pub(crate) fn merge<'a>(
    written: impl Iterator<Item = Written<'a>>,
    is_hidden: impl Fn(&[u8]) -> bool,
    below: impl FnOnce(&mut Visit<'_>) -> Result<()>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let mut written: Peekable<_> = written.peekable();
    let mut stopped = false;
    below(&mut |row, value| {
        while let Some((before, value)) = written.next_if(|(written, _)| written[..] < *row) {
            if let Some(value) = value {
                if visit(before, value).is_break() {
                    stopped = true;
                    return ControlFlow::Break(());
                }
            }
        }
        let flow = match written.next_if(|(written, _)| written[..] == *row) {
            Some((_, Some(value))) => visit(row, value),
            Some((_, None)) => ControlFlow::Continue(()),
            None if is_hidden(row) => ControlFlow::Continue(()),
            None => visit(row, value),
        };
        stopped = flow.is_break();
        flow
    })?;
    if !stopped {
        for (row, value) in written {
            if let Some(value) = value {
                if visit(row, value).is_break() {
                    break;
                }
            }
        }
    }
    Ok(())
}
