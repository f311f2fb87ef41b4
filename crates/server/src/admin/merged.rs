//! Requests of a store that asks which of its regions have merged away.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::{RegionDescriptor, RegionId, Slot, SlotRange};

use super::ask::{ask_for, Ask};
use crate::admin_error::{refuse, AdminError};
use crate::store::Store;

/// A region, and the slots that it had when the store last received its descriptor.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AskedRegion {
    region: RegionId,
    first: Slot,
    last: Slot,
}

/// A region that merged away, and the encoded descriptors of the regions that have its slots now.
type Merged = (RegionId, Vec<Vec<u8>>);

/// Asks the leader of the meta region which of the regions have merged away. Returns them with the
/// regions that have their slots now.
pub async fn merged_away(
    store: &Store,
    regions: Vec<RegionId>,
) -> Result<Vec<(RegionId, Vec<RegionDescriptor>)>, AdminError> {
    let asked = |region: RegionId| {
        let SlotRange { first, last } = store.regions.get(region)?.slots()?;
        Some(AskedRegion { region, first, last })
    };
    let regions = regions.into_iter().filter_map(asked).collect();
    let answer: Vec<Merged> = ask_for(store, Ask::MergedAway { regions }).await?;
    let read = |(region, heirs): Merged| {
        let heirs = heirs.iter().map(|heir| RegionDescriptor::decode(heir)).collect::<Result<Vec<_>, _>>();
        Ok((region, heirs.map_err(|error| refuse(502, error.to_string()))?))
    };
    answer.into_iter().map(read).collect()
}

/// Answers as the leader of the meta region.
pub fn answer(store: &Store, regions: &[AskedRegion]) -> Value {
    let slots = |asked: &AskedRegion| SlotRange { first: asked.first, last: asked.last };
    let asked: Vec<_> = regions.iter().map(|asked| (asked.region, slots(asked))).collect();
    let encoded = |(region, heirs): node::merged::Merged| {
        (region, heirs.iter().map(|heir| heir.encode().to_vec()).collect())
    };
    let merged: Vec<Merged> = store.cluster.merged_away(&asked).into_iter().map(encoded).collect();
    serde_json::to_value(merged).expect("plain data")
}
