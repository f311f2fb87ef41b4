//! The bodies of fuzz targets, which `fuzz/` calls.

use std::collections::BTreeMap;

use placement::{Capability, PlanLimits, Policy};
use storage::{MemoryKeyspace, Txn};
use types::{RegionDescriptor, StoreId, Term, META_REGION, NEWEST_VERSION};

use crate::{
    apply_entry, bootstrap_plan, encode_entry, Driver, DriverConfig, Layout, Ledger, LedgerConfig, Mark,
    MetaCommand, MetaReply, MetaState, Order, StoreFacts, StoreHeartbeat, StoreRecord,
};

const SECOND_NANOS: u64 = 1_000_000_000;
const STORES: u64 = 4;
const TERM: Term = 5;

/// Decodes what stores tell each other about regions. Whatever is decoded is encoded and decoded
/// again. An input's first byte chooses the message.
pub fn message(input: &[u8]) {
    let Some((&kind, bytes)) = input.split_first() else { return };
    match kind % 5 {
        0 => {
            let Ok(heartbeat) = StoreHeartbeat::decode(bytes) else { return };
            let again = StoreHeartbeat::decode(&heartbeat.encode(NEWEST_VERSION)).expect("what was encoded");
            assert_eq!(again, heartbeat);
        }
        1 => {
            let Ok((term, order)) = Order::decode(bytes) else { return };
            assert_eq!(Order::decode(&order.encode(term)), Ok((term, order.clone())));
            drop(order.to_string());
        }
        2 => {
            let Ok(descriptor) = RegionDescriptor::decode(bytes) else { return };
            assert_eq!(RegionDescriptor::decode(&descriptor.encode()), Ok(descriptor));
        }
        3 => {
            let Ok(mark) = Mark::decode(bytes) else { return };
            assert_eq!(Mark::decode(&mark.encode()), Ok(mark));
        }
        _ => {
            let Ok(reply) = MetaReply::decode(bytes) else { return };
            assert_eq!(MetaReply::decode(&reply.encode()), Ok(reply));
        }
    }
}

/// Returns the command that begins a cluster of four stores and eight regions.
pub fn bootstrap() -> MetaCommand {
    let ids: Vec<StoreId> = (0..STORES).collect();
    let facts = StoreFacts {
        key: None,
        client: String::new(),
        peer: String::new(),
        admin: String::new(),
        forward: None,
        device: String::new(),
        capability: Capability::UNKNOWN,
        labels: BTreeMap::new(),
    };
    MetaCommand::Bootstrap {
        cluster_id: 1,
        stores: ids.iter().map(|id| StoreRecord::new(*id, facts.clone())).collect(),
        regions: bootstrap_plan(&Layout { stores: ids, regions: 8, replicas: 3 }),
        policy: Policy::Even,
        config: BTreeMap::new(),
        version: NEWEST_VERSION,
    }
}

/// Hears heartbeats of stores as the meta region's leader, which plans after each. An input is a
/// policy in one byte, and heartbeats, each after its length in two bytes.
pub fn heartbeats(input: &[u8]) {
    let Some((&policy, mut rest)) = input.split_first() else { return };
    let mut ledger = Ledger::new(0, LedgerConfig::default());
    let mut driver = Driver::new(DriverConfig::default());
    let (mut meta, mut now) = (MetaState::default(), 0);
    let policies = [Policy::Even, Policy::LeaderOnly, Policy::Alor, Policy::Adaptive];
    let policy = policies[usize::from(policy) % policies.len()];
    for command in [bootstrap(), MetaCommand::SetPolicy { policy }] {
        meta.apply(&command, 1).expect("the beginning of a cluster");
    }
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (bytes, after) = after.split_at(length);
        rest = after;
        now += SECOND_NANOS;
        let Ok(heartbeat) = StoreHeartbeat::decode(bytes) else { continue };
        ledger.hear(heartbeat, now);
        let step = driver.step(&meta, &ledger, &PlanLimits::default(), TERM, now);
        for command in step.commands {
            let _ = meta.apply(&command, now / 1_000_000);
        }
        for order in step.orders {
            assert_eq!(Order::decode(&order.1.encode(TERM)), Ok((TERM, order.1)));
        }
    }
}

/// Applies commands of the meta region, one a line. The state follows from the rows, and each
/// command is decoded as it was encoded.
pub fn meta_log(input: &[u8]) {
    let (mut state, mut rows) = (MetaState::default(), MemoryKeyspace::default());
    for (line, stamp_ms) in input.split(|&byte| byte == b'\n').zip(1..) {
        let Ok(command) = MetaCommand::decode(line) else { continue };
        // Numbers with a fraction may lose their last digit.
        if let Ok(again) = MetaCommand::decode(&command.encode()) {
            assert_eq!(again.encode(), command.encode());
        }
        let mut txn = Txn::begin(&rows, META_REGION).expect("the region's state");
        let _ = apply_entry(&encode_entry(stamp_ms, line), &mut state, &mut txn).expect("a known command");
        rows.write(txn.finish().0);
        rows.flush();
    }
    assert_eq!(MetaState::load(&rows).expect("rows written here"), state, "the rows hold the state");
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_of_the_fuzz_targets_harm_nothing() {
        super::replay::seeds("cluster_message", super::message);
        super::replay::seeds("heartbeats", super::heartbeats);
        super::replay::seeds("meta_log", super::meta_log);
    }
}
