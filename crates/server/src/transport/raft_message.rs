//! Decodes Raft messages of other stores.
//!
//! The decoder of protobuf skips a group in an unknown field by a recursion without a limit, so a
//! few thousand bytes could overflow the stack (RUSTSEC-2024-0437). Raft's messages have no groups,
//! so a message with one is refused before it is decoded.

use bytes::Bytes;
use protobuf::Message as _;
use raft::eraftpb::Message;

const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const DELIMITED: u64 = 2;
const FOUR_BYTES: u64 = 5;

/// The fields of a message that hold messages, by number.
struct Shape(&'static [(u64, Shape)]);

const MESSAGE: Shape = Shape(&[(7, Shape(&[])), (9, Shape(&[(2, Shape(&[(1, Shape(&[]))]))]))]);

/// Decodes a message.
pub fn decode(bytes: &Bytes) -> Result<Message, String> {
    has_no_groups(bytes, &MESSAGE).ok_or("a message with a group, or one that is cut short")?;
    Message::parse_from_carllerche_bytes(bytes).map_err(|error| error.to_string())
}

/// Returns `None` if the message, or one inside it, has a group or cannot be read. The depth is
/// that of the shape.
fn has_no_groups(mut bytes: &[u8], shape: &Shape) -> Option<()> {
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        match tag & 7 {
            VARINT => drop(varint(&mut bytes)?),
            EIGHT_BYTES => drop(take(&mut bytes, 8)?),
            FOUR_BYTES => drop(take(&mut bytes, 4)?),
            DELIMITED => {
                let length = varint(&mut bytes)?;
                let content = take(&mut bytes, length)?;
                if let Some((_, inner)) = shape.0.iter().find(|(number, _)| *number == tag >> 3) {
                    has_no_groups(content, inner)?;
                }
            }
            _ => return None,
        }
    }
    Some(())
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::{Entry, MessageType};

    use super::*;

    fn message() -> Message {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.term, message.to, message.priority) = (u64::MAX, 3, -1);
        message.set_context(vec![0x0b; 20].into());
        for index in 0..3 {
            let (data, context) = (vec![0x0b; 300].into(), Bytes::new());
            message.mut_entries().push(Entry { index, data, context, ..Entry::default() });
        }
        let snapshot = message.mut_snapshot();
        snapshot.set_data(vec![0x0b; 40].into());
        snapshot.mut_metadata().mut_conf_state().set_voters(vec![1, 2, 300]);
        message
    }

    #[test]
    fn whole_messages_are_decoded_and_cut_ones_are_refused() {
        let bytes = message().write_to_bytes().unwrap();
        assert_eq!(decode(&bytes.clone().into()).unwrap(), message());
        let cut = |at: usize| decode(&bytes[..at].to_vec().into());
        assert!((0..bytes.len()).filter(|at| cut(*at).is_err()).count() > bytes.len() - 40);
    }

    #[test]
    fn a_group_is_refused_wherever_it_is() {
        // Field 100, the start of a group: it would be skipped by a recursion for each.
        let groups = [0xa3, 0x06].repeat(1_000_000);
        let inside = |number: u8, inner: &[u8]| {
            let mut out = vec![number << 3 | 2];
            let mut length = inner.len();
            while length >= 0x80 {
                out.push((length & 0x7f) as u8 | 0x80);
                length >>= 7;
            }
            out.push(length as u8);
            [out, inner.to_vec()].concat()
        };
        let conf_state = inside(1, &groups);
        let metadata = inside(2, &conf_state);
        let places = [
            groups.clone(),
            inside(7, &groups),
            inside(9, &groups),
            inside(9, &metadata),
            inside(9, &inside(2, &groups)),
        ];
        for (at, bytes) in places.into_iter().enumerate() {
            let before = message().write_to_bytes().unwrap();
            assert!(decode(&[before, bytes].concat().into()).is_err(), "place {at}");
        }
        // The bytes of an entry may be anything.
        assert!(decode(&inside(7, &inside(4, &groups)).into()).is_ok());
        for bad in
            [&[0x08, 0xff][..], &[0xff; 11], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]]
        {
            assert!(decode(&bad.to_vec().into()).is_err());
        }
    }
}
