//! Commands on their way to another store, and their answers on the way back.
//!
//! ```text
//! request   region u64, patience ms u32, then per command: db u16, flags u8 (1: RESP3 shapes),
//!           argument count u32, (length u32, bytes)*
//! answer    per command: length u32, the encoded reply in the protocol that the flags asked for
//! ```

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use types::RegionId;

use super::Item;
use crate::transport::frame::{take_bytes, take_u32, take_u64, take_u8, FrameError};

const FLAG_RESP3: u8 = 1;

#[derive(Debug, thiserror::Error)]
pub enum PassingError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a passed command is unknown here")]
    UnknownCommand,
}

pub fn encode_request(region: RegionId, patience: Duration, items: &[Item]) -> Bytes {
    let size = items.iter().flat_map(|item| &item.args).map(|arg| arg.len() + 4).sum::<usize>();
    let mut out = BytesMut::with_capacity(size + items.len() * 16 + 16);
    out.put_u64_le(region);
    out.put_u32_le(u32::try_from(patience.as_millis()).unwrap_or(u32::MAX));
    for item in items {
        out.put_u8(item.db as u8);
        out.put_u8((item.db >> 8) as u8);
        out.put_u8(if item.resp3 { FLAG_RESP3 } else { 0 });
        out.put_u32_le(item.args.len() as u32);
        for arg in &item.args {
            out.put_u32_le(u32::try_from(arg.len()).expect("arguments are below 4 GiB"));
            out.put_slice(arg);
        }
    }
    out.freeze()
}

pub fn decode_request(mut body: Bytes) -> Result<(RegionId, Duration, Vec<Item>), PassingError> {
    let region = take_u64(&mut body, "the region")?;
    let patience = Duration::from_millis(u64::from(take_u32(&mut body, "the patience")?));
    let mut items = Vec::new();
    while !body.is_empty() {
        let db =
            u16::from(take_u8(&mut body, "a database")?) | u16::from(take_u8(&mut body, "a database")?) << 8;
        let flags = take_u8(&mut body, "a command's flags")?;
        let count = take_u32(&mut body, "an argument count")?;
        let mut args = Vec::new();
        for _ in 0..count {
            let length = take_u32(&mut body, "an argument's length")? as usize;
            args.push(take_bytes(&mut body, length, "an argument")?);
        }
        let item = Item::new(args, db, flags & FLAG_RESP3 != 0).ok_or(PassingError::UnknownCommand)?;
        items.push(item);
    }
    Ok((region, patience, items))
}

pub fn encode_answer(replies: &[Bytes]) -> Bytes {
    let mut out = BytesMut::with_capacity(replies.iter().map(|r| r.len() + 4).sum());
    for reply in replies {
        out.put_u32_le(u32::try_from(reply.len()).expect("a reply is below the frame limit"));
        out.put_slice(reply);
    }
    out.freeze()
}

pub fn decode_answer(mut body: Bytes) -> Result<Vec<Bytes>, FrameError> {
    let mut replies = Vec::new();
    while !body.is_empty() {
        let length = take_u32(&mut body, "a reply's length")? as usize;
        replies.push(take_bytes(&mut body, length, "a reply")?);
    }
    Ok(replies)
}
