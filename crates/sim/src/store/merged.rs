//! Questions to the meta region about regions that may have merged away, as a store asks them.

use node::merged::{conclude, Merged};
use types::{RegionId, SlotRange, StoreId, META_REGION};

use crate::world::{Packet, World};

impl World {
    /// Asks the meta region's leader about the regions that have long had no leader.
    pub(super) fn look_for_merged(&mut self, id: StoreId) {
        let boot = self.boot(id);
        let Some(process) = self.process(id).filter(|process| process.merged.is_due(boot)) else { return };
        let local =
            process.regions.iter().filter(|(region, shared)| shared.is_local && **region != META_REGION);
        let silent = process.ledger.without_live_leader(local.map(|(&region, _)| region), boot);
        let due = process.merged.look(silent, false, boot);
        let slots = |region: RegionId| Some((region, process.regions.get(&region)?.descriptor.slots?));
        let regions: Vec<(RegionId, SlotRange)> = due.into_iter().filter_map(slots).collect();
        let Some(leader) = process.regions.get(&META_REGION).and_then(|meta| meta.leadership.leader) else {
            return;
        };
        if !regions.is_empty() {
            self.tally.asked_if_merged += regions.len() as u64;
            self.send(id, leader, Packet::AskMerged { regions });
        }
    }

    /// Answers as the meta region's leader.
    pub(super) fn answer_merged(&mut self, id: StoreId, from: StoreId, regions: Vec<(RegionId, SlotRange)>) {
        let Some(process) = self.process(id) else { return };
        if process.regions.get(&META_REGION).is_none_or(|meta| meta.leadership.leader != Some(id)) {
            return;
        }
        let merged = node::merged::answer(&process.meta, &regions);
        let asked = regions.into_iter().map(|(region, _)| region).collect();
        self.send(id, from, Packet::Merged { asked, merged });
    }

    pub(super) fn hear_merged(&mut self, id: StoreId, asked: &[RegionId], merged: Vec<Merged>) {
        for input in conclude(asked, merged) {
            self.tally.found_merged += 1;
            self.say(&format!("store {id} is told: {input:?}"));
            self.input(id, input);
        }
    }
}
