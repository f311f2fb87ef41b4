//! What a store makes of its log and its rows when it starts again.

use super::*;

impl Store {
    /// The peers as the log's and the engine's durable parts have them.
    pub fn recover(&mut self, id: StoreId) -> (Vec<PeerSeed>, BTreeMap<RegionId, u64>) {
        let lives: Vec<(RegionId, Life)> =
            self.disk.lives.borrow().iter().map(|(&region, life)| (region, life.clone())).collect();
        let (mut seeds, mut tombstones) = (Vec::new(), BTreeMap::new());
        self.apply_snapshots_again();
        // Before any of them goes: one that was removed may be the heir of one that merged.
        let described = self.engines.clone();
        for (region, life) in lives {
            let (made_as, parent) = match life {
                Life::Tombstone(id) => {
                    tombstones.insert(region, id);
                    self.engines.remove(&region);
                    self.flushed.remove(&region);
                    self.disk.regions.borrow_mut().remove(&region);
                    continue;
                }
                Life::Began(restart) => match restart.cause {
                    RestartCause::Snapshot => (restart.descriptor, None),
                    RestartCause::Split { parent, at } => (restart.descriptor, Some((parent, at))),
                },
                Life::Founded(descriptor)
                    if !described.values().any(|other| other.descriptor.supersedes(&descriptor)) =>
                {
                    let engine = Engine::founded(descriptor.clone());
                    self.engines.entry(region).or_insert(engine);
                    (descriptor, None)
                }
                Life::Founded(descriptor) | Life::Exists(descriptor) => (descriptor, None),
            };
            let engine = self.engines.get(&region);
            let newest = engine.map_or(&made_as, |engine| &engine.descriptor);
            let has_merged = described.values().any(|other| other.descriptor.supersedes(newest));
            if has_merged || !newest.has_peer_on(id) {
                let peer = made_as.peer_on(id).expect("it was made here").id;
                self.disk.lives.borrow_mut().insert(region, Life::Tombstone(peer));
                tombstones.insert(region, peer);
                self.engines.remove(&region);
                self.flushed.remove(&region);
                self.disk.regions.borrow_mut().remove(&region);
                continue;
            }
            let descriptor = engine.map_or(made_as, |engine| engine.descriptor.clone());
            let applied = engine.map(|engine| engine.applied);
            seeds.push(PeerSeed { descriptor, applied, parent });
        }
        let known: BTreeSet<RegionId> = seeds.iter().map(|seed| seed.descriptor.id).collect();
        self.disk.regions.borrow_mut().retain(|region, _| known.contains(region));
        (seeds, tombstones)
    }

    /// A crash came before the log said that they were applied.
    fn apply_snapshots_again(&mut self) {
        let lives = self.disk.lives.borrow().clone();
        for (region, life) in lives {
            let Life::Began(restart) = life else { continue };
            if restart.cause == RestartCause::Snapshot {
                self.ingest(region, restart.index);
                self.disk.lives.borrow_mut().insert(region, Life::Exists(restart.descriptor));
            }
        }
    }

    /// Replaces a region's rows, durably; what was written before is flushed by that.
    pub fn ingest(&mut self, region: RegionId, index: LogIndex) {
        let data = self.received[&(region, index)].clone();
        self.engines.insert(region, data);
        self.flushed = self.engines.clone();
    }
}
