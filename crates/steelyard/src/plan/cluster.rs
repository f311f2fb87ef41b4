//! A running cluster as reported by its stores, and the same cluster with changed stores.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{ensure, Context};
use client::admin::{AdminClient, ConfigQuery, PolicyQuery, RegionRow, RegionsQuery, StoreRow, StoresQuery};
use client::table::bytes as show_bytes;
use placement::Policy;
use predict::{Question, Region, Store, Workload};
use types::{SlotRange, META_REGION, SLOT_COUNT};

use super::devices::Devices;
use super::settings::{self, Settings};
use super::Plan;

/// The name of the setting for the number of copies of a region.
const REPLICAS: &str = "replicas";
const TIMEOUT: Duration = Duration::from_secs(10);
/// Number of uncounted operations at the start, as a part of the counted ones. They warm up the
/// caches, which are empty at first.
const WARM_UP_PART: f64 = 0.2;
/// Minimum number of records per region at which the bytes of regions show how they share data. The
/// random deviation is then a tenth.
const RECORDS_TELLING: u64 = 100;

pub struct Running {
    stores: Vec<StoreRow>,
    /// The user regions, without the meta region.
    regions: Vec<RegionRow>,
    pub policy: Policy,
    /// The number of copies of a region that the cluster has agreed on.
    replicas: usize,
}

impl Running {
    pub fn ask(address: SocketAddr) -> anyhow::Result<Running> {
        let client = AdminClient::new(address, TIMEOUT);
        let mut stores = client.ask(&StoresQuery {})?;
        let mut regions = client.ask(&RegionsQuery {})?;
        let policy = client.ask(&PolicyQuery {})?.policy.parse()?;
        let settings = client.ask(&ConfigQuery {})?;
        let replicas = settings.iter().find(|row| row.name == REPLICAS);
        let replicas = replicas.and_then(|row| row.value.parse().ok());
        let replicas = replicas.context("the store did not report how many copies a region has")?;
        stores.sort_by_key(|store| store.id);
        regions.retain(|region| region.id != META_REGION);
        regions.sort_by_key(|region| region.id);
        Ok(Running { stores, regions, policy, replicas })
    }

    #[cfg(test)]
    pub fn of(stores: Vec<StoreRow>, regions: Vec<RegionRow>, policy: Policy) -> Running {
        Running { stores, regions, policy, replicas: 3 }
    }

    /// Returns the present mix of reads and writes. `None` if there is almost no load.
    pub fn mix(&self) -> Option<Workload> {
        let reads: f64 = self.regions.iter().map(|region| region.read_rate.max(0.0)).sum();
        let writes: f64 = self.regions.iter().map(|region| region.write_rate.max(0.0)).sum();
        let percent = 100.0 * reads / (reads + writes);
        (reads + writes >= 1.0).then_some(Workload::Mixed(percent.round() as u8))
    }

    /// Returns the question about the unchanged cluster.
    pub fn question(&self, plan: &Plan) -> anyhow::Result<Settings> {
        let devices = Devices::of(&self.stores, plan)?;
        let mut notes = devices.notes();
        let draining = self.stores.iter().filter(|row| is_draining(row));
        notes.extend(draining.map(|row| format!("store {} is draining and leaves the cluster", row.id)));
        self.with(plan, self.present(plan, &devices)?, notes)
    }

    /// Returns a description of the changes and the question about the changed cluster. `None` if
    /// no change was requested.
    pub fn changed(&self, plan: &Plan) -> anyhow::Result<Option<(String, Settings)>> {
        if plan.add.is_empty() && plan.remove.is_empty() && plan.swap.is_empty() {
            return Ok(None);
        }
        let devices = Devices::of(&self.stores, plan)?;
        let mut stores = self.present(plan, &devices)?;
        let mut words = Vec::new();
        for swap in &plan.swap {
            let (id, device) = swap
                .split_once('=')
                .and_then(|(id, device)| Some((id.trim().parse::<u64>().ok()?, device.trim())))
                .with_context(|| {
                    format!("'{swap}' is no swap: write a store and its new device, such as 3=nvm")
                })?;
            let known = find(&mut stores, id)?;
            let new = devices.new_store(id, device, known.capacity_bytes)?;
            words.push(format!("store {id} with {device} instead of {}", known.device_name));
            // The store keeps its other properties with another device.
            *known = Store {
                data_weight: known.data_weight,
                leader_weight: known.leader_weight,
                leaving: known.leaving,
                ..new
            };
        }
        for id in &plan.remove {
            find(&mut stores, *id)?.leaving = true;
            words.push(format!("without store {id}"));
        }
        for device in &plan.add {
            let id = stores.iter().map(|store| store.id).max().map_or(0, |id| id + 1);
            let capacity = plan.capacity.map_or(0, |capacity| capacity.0);
            stores.push(devices.new_store(id, device, capacity)?);
            words.push(format!("with {device} as store {id}"));
        }
        let what = format!("the cluster {}", words.join(", "));
        let has_new = !(plan.add.is_empty() && plan.swap.is_empty());
        let notes = has_new.then(|| devices.new_note()).into_iter().collect();
        Ok(Some((what, self.with(plan, stores, notes)?)))
    }

    fn with(&self, plan: &Plan, mut stores: Vec<Store>, notes: Vec<String>) -> anyhow::Result<Settings> {
        let bytes = match plan.data {
            Some(data) => data.0,
            None => self.held_enough(plan)?,
        };
        let data_factor = settings::factor(plan, bytes)?;
        for store in &mut stores {
            store.capacity_bytes = (store.capacity_bytes as f64 * data_factor) as u64;
        }
        let regions = self.placed(plan, bytes as f64 * data_factor)?;
        let records = (bytes as f64 * data_factor / (plan.value.0 + 16) as f64).round().max(1.0) as u64;
        let mut question: Question = settings::of(plan, stores, regions, records, data_factor);
        question.replicas = self.replicas.min(question.stores.len());
        question.load.warm_up = (question.load.operations as f64 * WARM_UP_PART) as u64;
        Ok(Settings { question, data_factor, notes })
    }

    fn held(&self) -> u64 {
        self.regions.iter().map(|region| region.bytes).sum()
    }

    /// Returns the bytes that the cluster holds. Fails if they are fewer than a record per region.
    fn held_enough(&self, plan: &Plan) -> anyhow::Result<u64> {
        let held = self.held();
        let records = held / settings::record_bytes(plan);
        ensure!(
            records >= self.regions.len() as u64,
            "the cluster holds {} of data, less than a record of {} for each of its {} regions: \
             say with --data how much it is to hold, as --data 10gb, or with --value how large its values are",
            show_bytes(held as f64),
            show_bytes(settings::record_bytes(plan) as f64),
            self.regions.len(),
        );
        Ok(held)
    }

    /// Returns the regions with their present peers. `bytes` is divided among them in proportion to
    /// their present bytes. If that sample is too small, it is divided by the number of slots, over
    /// which keys are hashed.
    fn placed(&self, plan: &Plan, bytes: f64) -> anyhow::Result<Vec<Region>> {
        let held = self.held();
        let telling = held / settings::record_bytes(plan) >= RECORDS_TELLING * self.regions.len() as u64;
        let rate: f64 = self.regions.iter().map(|region| region.read_rate + region.write_rate).sum();
        let placed = self.regions.iter().map(|region| {
            let peers: Vec<u64> = voters(region).collect();
            ensure!(!peers.is_empty(), "region {} has no voter", region.id);
            let slots = SlotRange {
                first: region.first_slot.unwrap_or(0),
                last: region.last_slot.unwrap_or(SLOT_COUNT - 1),
            };
            let share = match telling {
                true => region.bytes as f64 / held as f64,
                false => slots.len() as f64 / f64::from(SLOT_COUNT),
            };
            Ok(Region {
                id: region.id,
                slots,
                // A region without a leader will get one.
                leader: region.leader.filter(|leader| peers.contains(leader)).unwrap_or(peers[0]),
                peers,
                bytes: (bytes * share) as u64,
                weight: (rate >= 1.0).then_some(region.read_rate + region.write_rate),
            })
        });
        placed.collect()
    }

    /// Returns the unchanged stores.
    fn present(&self, plan: &Plan, devices: &Devices<'_>) -> anyhow::Result<Vec<Store>> {
        let mut stores = devices.stores()?;
        for (store, row) in stores.iter_mut().zip(&self.stores) {
            store.capacity_bytes = plan.capacity.map_or(row.capacity_bytes, |capacity| capacity.0);
            (store.data_weight, store.leader_weight) = (row.data_weight, row.leader_weight);
            store.leaving = is_draining(row);
        }
        Ok(stores)
    }
}

fn is_draining(row: &StoreRow) -> bool {
    row.state == "draining"
}

fn voters(region: &RegionRow) -> impl Iterator<Item = u64> + '_ {
    region.peers.iter().filter(|peer| peer.role == "voter").map(|peer| peer.store)
}

fn find(stores: &mut [Store], id: u64) -> anyhow::Result<&mut Store> {
    let found = stores.iter_mut().find(|store| store.id == id);
    found.with_context(|| format!("the cluster has no store {id}"))
}
