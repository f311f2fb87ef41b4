//! The bodies of fuzz targets, which `fuzz/` calls: what other stores, programs at the admin
//! endpoint and operators' settings send, as far as it is decoded without a store.

use bytes::{Bytes, BytesMut};
use cluster::admin::{
    AcceptLossRequest, CheckRequest, ConfigRequest, DeviceRequest, FailRequest, LeaderRequest, Operation,
    OperatorsQuery, PolicyRequest, QuarantineRequest, RecoverRequest, RegionRequest, StoreRequest,
};
use cluster::{Order, StoreHeartbeat};
use resp::{Decoder, Limits};
use rocks::snapshot::Manifest;
use serde::de::DeserializeOwned;
use serde::Serialize;
use types::{RegionDescriptor, NEWEST_VERSION};
use xxhash_rust::xxh3::xxh3_64;

pub use crate::admission::fuzz as store_join;
use crate::dispatch::passing;
use crate::output_limits::OutputLimits;
use crate::pubsub::notices::Classes;
use crate::pubsub::spread;
use crate::survey::AskSurvivor;
pub use crate::transport::frame::fuzz as store_frame;
use crate::transport::frame::{self, Frame};
use crate::transport::join_token::JoinToken;
use crate::transport::kinds;
use crate::transport::raft_lane::decode_messages;
use crate::zookeeper_settings::ZooKeeper;
use crate::{admin, client, functions, snapshot, upgrade};

/// Decodes the frames of another store, and what is inside of each.
pub fn store_messages(input: &[u8]) {
    let mut buffer = BytesMut::from(input);
    while let Ok(Some(frame)) = frame::take(&mut buffer) {
        match frame {
            Frame::Raft(messages) => drop(decode_messages(messages)),
            Frame::Heartbeat(report) => {
                let _ = StoreHeartbeat::decode(&report).map(|report| report.encode(NEWEST_VERSION));
            }
            Frame::Request { kind, body, .. } => request(kind, body),
            Frame::Response { body, .. } => drop(passing::decode_answer(body)),
            Frame::Order(order) => drop(Order::decode(&order)),
            Frame::Announce(descriptor) => drop(RegionDescriptor::decode(&descriptor)),
            Frame::Hello(_) | Frame::Refused(_) | Frame::Challenge(_) | Frame::Proof(_) => {}
        }
    }
}

fn request(kind: u8, mut body: Bytes) {
    match kind {
        kinds::REQUEST_COMMANDS => {
            for item in passing::decode_request(body).into_iter().flat_map(|request| request.items) {
                // What is asked about every command before it is executed.
                drop((item.keys_exist(), item.denies_oom(), item.is_bounded_read(), item.too_large()));
                command::key_access(item.spec, &item.args).for_each(drop);
                command::prefetch::of_command(item.spec, &item.args, item.db, &mut drop);
                command::transaction::sent_commands(item.spec, &item.args);
            }
        }
        kinds::REQUEST_ADMIN => json::<admin::Ask>(&body),
        kinds::REQUEST_RECOVER => json::<AskSurvivor>(&body),
        kinds::REQUEST_VERSIONS => json::<upgrade::Question>(&body),
        kinds::REQUEST_JOIN => store_join(&body),
        kinds::REQUEST_JOIN_AS => store_join(body.get(4..).unwrap_or_default()),
        kinds::REQUEST_PUBLISH => {
            while !body.is_empty() {
                match spread::decode(&mut body) {
                    Ok((kind, channel, payload)) => {
                        let again = &mut spread::encode(kind, &channel, &payload);
                        assert_eq!(spread::decode(again), Ok((kind, channel, payload)));
                    }
                    Err(_) => break,
                }
            }
        }
        _ => {}
    }
}

/// Decodes a value, which is the same after it was encoded.
fn json<T: DeserializeOwned + Serialize>(body: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(body) else { return };
    let text = serde_json::to_vec(&value).expect("plain data");
    let again: T = serde_json::from_slice(&text).expect("what was encoded");
    assert_eq!(serde_json::to_vec(&again).expect("plain data"), text);
}

/// Decodes the frames of a snapshot's connection. An offer's manifest gets the right checksum,
/// which no fuzzer finds.
pub fn snapshot_frames(input: &[u8]) {
    let mut rest = input;
    while let Some((length, after)) = rest.split_first_chunk() {
        let (content, after) = after.split_at(usize::from(u16::from_be_bytes(*length)).min(after.len()));
        rest = after;
        snapshot::fuzz(Bytes::copy_from_slice(content));
    }
    let mut sealed = input.to_vec();
    sealed.extend(xxh3_64(input).to_be_bytes());
    if let Ok(manifest) = Manifest::decode(&sealed) {
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest.clone()));
        let _ = manifest.bytes();
    }
}

/// Decodes the body of a request at the admin endpoint, its login, and the values of settings. The
/// first byte chooses between them.
pub fn admin_request(input: &[u8]) {
    let Some((&kind, body)) = input.split_first() else { return };
    let text = std::str::from_utf8(body).unwrap_or_default();
    match kind % 20 {
        0 => operation::<StoreRequest>(body),
        1 => operation::<LeaderRequest>(body),
        2 => operation::<RegionRequest>(body),
        3 => operation::<CheckRequest>(body),
        4 => operation::<QuarantineRequest>(body),
        5 => operation::<FailRequest>(body),
        6 => operation::<PolicyRequest>(body),
        7 => operation::<ConfigRequest>(body),
        8 => operation::<RecoverRequest>(body),
        9 => operation::<DeviceRequest>(body),
        10 => operation::<AcceptLossRequest>(body),
        11 => operation::<OperatorsQuery>(body),
        12 => {
            let _ = admin::credentials(text);
        }
        13 => {
            // What is shown leaves out `n` beside `A`, as in Redis.
            if let Some(shown) = Classes::parse(text).map(|classes| classes.to_string()) {
                assert_eq!(Classes::parse(&shown).map(|classes| classes.to_string()), Some(shown));
            }
        }
        14 => {
            if let Ok(limits) = OutputLimits::default().changed(text) {
                assert_eq!(limits.changed(&limits.shown()), Ok(limits));
            }
            let _ = types::parse_size(text);
        }
        15 => {
            let token = JoinToken::parse(text);
            assert!(token.is_none_or(|token| token.text().eq_ignore_ascii_case(text)));
        }
        16 => drop(ZooKeeper::parse(text)),
        17 => drop(node::coordinator::parse_positions(text)),
        18 => drop(functions::serialized::read(&Bytes::copy_from_slice(body))),
        _ => {
            // Arguments of commands on the connection.
            let mut buffer = BytesMut::from(body);
            let mut decoder = Decoder::new(Limits::default());
            while let Ok(Some(request)) = decoder.decode(&mut buffer) {
                client::fuzz(&request.args);
            }
        }
    }
}

fn operation<O: Operation>(body: &[u8]) {
    if let Ok(operation) = serde_json::from_slice::<O>(body) {
        let _ = operation.refusal();
        json::<O>(body);
    }
}

#[cfg(any(test, feature = "fuzzing"))]
mod served;
#[cfg(any(test, feature = "fuzzing"))]
pub use served::{own_commands, store_requests};

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_of_the_fuzz_targets_harm_nothing() {
        super::replay::seeds("store_frame", super::store_frame);
        super::replay::seeds("store_join", super::store_join);
        super::replay::seeds("store_messages", super::store_messages);
        super::replay::seeds("snapshot_frames", super::snapshot_frames);
        super::replay::seeds("admin_request", super::admin_request);
        super::replay::seeds("own_commands", super::own_commands);
        super::replay::seeds("store_requests", super::store_requests);
    }
}
