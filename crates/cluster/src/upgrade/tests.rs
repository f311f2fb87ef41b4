use proptest::prelude::*;
use types::NEWEST_VERSION;

use super::*;
use crate::state::tests::{begun, facts};
use crate::{MetaCommand, MetaError, MetaReply, StoreKey, CONFIG_FINISH_UPGRADES};

const SECOND: u64 = 1_000_000_000;

/// A store: the newest version of its program, and its data directory.
#[derive(Clone, Copy, Debug)]
struct Store {
    newest: Version,
    prepared: Version,
}

impl Store {
    /// A program refuses to start where a newer version is recorded.
    fn runs(&self) -> bool {
        self.prepared <= self.newest
    }

    fn answer(&mut self, prepare: Option<Version>) -> Option<StoreVersions> {
        if !self.runs() {
            return None;
        }
        let wanted = prepare.filter(|version| *version <= self.newest).unwrap_or(0);
        self.prepared = self.prepared.max(wanted);
        Some(StoreVersions { newest: self.newest, prepared: self.prepared })
    }
}

/// A cluster of stores whose programs are replaced.
struct Cluster {
    meta: MetaState,
    stores: BTreeMap<StoreId, Store>,
    leader: StoreId,
    upgrade: Upgrade,
    now: BootNanos,
    /// A rise that was proposed and is not applied yet.
    proposed: Option<MetaCommand>,
}

impl Cluster {
    fn new(stores: u64) -> Cluster {
        let meta = begun(stores, 1);
        let stores = meta.members().map(|store| (store.id, Store { newest: 1, prepared: 1 })).collect();
        Cluster { meta, stores, leader: 0, upgrade: Upgrade::default(), now: SECOND, proposed: None }
    }

    /// Takes one step. Only the stores in `reached` receive its question.
    fn step(&mut self, reached: impl Fn(StoreId) -> bool) {
        let leader = self.stores[&self.leader];
        if !leader.runs() {
            return;
        }
        match self.upgrade.step(&self.meta, leader.newest, self.now) {
            UpgradeStep::Done => {}
            UpgradeStep::Ask { prepare } => {
                for (&id, store) in self.stores.iter_mut().filter(|(id, _)| reached(**id)) {
                    if let Some(versions) = store.answer(prepare) {
                        self.upgrade.hear(id, versions, self.now);
                    }
                }
            }
            UpgradeStep::Raise { version, members_version } => {
                self.proposed = Some(MetaCommand::RaiseVersion { version, members_version });
            }
        }
    }

    fn apply_proposed(&mut self) {
        if let Some(command) = self.proposed.take() {
            let _ = self.meta.apply(&command, 1);
        }
    }

    /// Has a store join. Returns false if it is refused.
    fn join(&mut self, newest: Version) -> bool {
        let number = self.meta.next_store;
        let mut facts = facts(number);
        facts.key = Some(StoreKey([number as u8; 32]));
        let command = MetaCommand::Join { facts, newest: (self.meta.version > 1).then_some(newest) };
        let Ok(MetaReply::Joined { store, .. }) = self.meta.apply(&command, 1) else { return false };
        self.stores.insert(store, Store { newest, prepared: self.meta.version });
        true
    }

    fn check(&self) {
        for store in self.meta.members() {
            let Store { newest, prepared } = self.stores[&store.id];
            assert!(
                prepared >= self.meta.version,
                "the cluster has version {}, and store {} with a program of {newest} is prepared for {prepared}",
                self.meta.version,
                store.id
            );
        }
    }
}

/// Something that happens to a cluster.
#[derive(Clone, Debug)]
enum Event {
    /// A step. Only the stores of this set of bits receive its question.
    Step(u8),
    Apply,
    /// A store's program is replaced, possibly by an older one.
    Program(u8, Version),
    Leader(u8),
    Join(Version),
    Later(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => any::<u8>().prop_map(|bits| Event::Step(bits | 0b0011_0110)),
        4 => Just(Event::Apply),
        4 => (0..8u8, 1..=3u32).prop_map(|(store, newest)| Event::Program(store, newest)),
        1 => (0..8u8).prop_map(Event::Leader),
        1 => (1..=3u32).prop_map(Event::Join),
        2 => (0..20u64).prop_map(Event::Later),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn no_store_is_left_behind_and_all_arrive(events in proptest::collection::vec(event(), 1..120)) {
        let mut cluster = Cluster::new(3);
        for event in events {
            match event {
                Event::Step(bits) => cluster.step(|id| bits >> (id % 8) & 1 == 1),
                Event::Apply => cluster.apply_proposed(),
                Event::Program(store, newest) => {
                    if let Some(store) = cluster.stores.get_mut(&u64::from(store)) {
                        store.newest = newest;
                    }
                }
                Event::Leader(store) => {
                    if cluster.stores.contains_key(&u64::from(store)) {
                        cluster.leader = store.into();
                        cluster.upgrade.forget();
                    }
                }
                Event::Join(newest) => drop(cluster.join(newest)),
                Event::Later(seconds) => cluster.now += seconds * SECOND,
            }
            cluster.check();
        }
        cluster.stores.values_mut().for_each(|store| store.newest = 3);
        for _ in 0..8 {
            cluster.now += SECOND;
            cluster.step(|_| true);
            cluster.apply_proposed();
            cluster.check();
        }
        // Answers of earlier programs count for a while.
        cluster.now += ANSWER_COUNTS_NANOS;
        for _ in 0..8 {
            cluster.step(|_| true);
            cluster.apply_proposed();
        }
        prop_assert_eq!(cluster.meta.version, 3);
    }
}

#[test]
fn a_version_rises_once_every_store_is_prepared_and_not_before() {
    let mut cluster = Cluster::new(3);
    let step = |cluster: &Cluster| cluster.upgrade.step(&cluster.meta, 2, cluster.now);
    assert_eq!(
        cluster.upgrade.step(&cluster.meta, 1, 1),
        UpgradeStep::Done,
        "an old program knows no newer one"
    );
    assert_eq!(step(&cluster), UpgradeStep::Ask { prepare: None });
    let told = |newest, prepared| StoreVersions { newest, prepared };
    cluster.upgrade.hear(0, told(2, 1), cluster.now);
    cluster.upgrade.hear(1, told(2, 1), cluster.now);
    assert_eq!(step(&cluster), UpgradeStep::Ask { prepare: None }, "a store has not answered");
    cluster.upgrade.hear(2, StoreVersions::BEFORE_QUESTIONS, cluster.now);
    assert_eq!(step(&cluster), UpgradeStep::Ask { prepare: None }, "a store has an old program");
    cluster.upgrade.hear(2, told(3, 1), cluster.now);
    assert_eq!(step(&cluster), UpgradeStep::Ask { prepare: Some(2) });
    for store in 0..3 {
        assert_eq!(step(&cluster), UpgradeStep::Ask { prepare: Some(2) });
        cluster.upgrade.hear(store, told(2, 2), cluster.now);
    }
    let members_version = cluster.meta.members_version;
    let raise = MetaCommand::RaiseVersion { version: 2, members_version };
    assert_eq!(step(&cluster), UpgradeStep::Raise { version: 2, members_version });
    cluster.now += ANSWER_COUNTS_NANOS;
    assert_eq!(step(&cluster), UpgradeStep::Ask { prepare: None }, "the answers are old");

    let mut meta = cluster.meta.clone();
    assert_eq!(meta.apply(&raise, 1), Ok(MetaReply::Changed));
    assert_eq!((meta.version, meta.agreed_settings().cluster_version), (2, 2));
    assert_eq!(meta.members_version, members_version + 1, "every store gets it");
    assert_eq!(meta.apply(&raise, 1), Ok(MetaReply::Unchanged));
    assert!(cluster.join(1));
    assert_eq!(cluster.meta.apply(&raise, 1), Err(MetaError::MembersChanged));
}

#[test]
fn a_cluster_waits_where_an_operator_wants_it_to() {
    let mut cluster = Cluster::new(1);
    cluster.stores.get_mut(&0).expect("the store").newest = 2;
    let set = |cluster: &mut Cluster, value: &str| {
        let command = cluster.meta.set(CONFIG_FINISH_UPGRADES, value).expect("a setting");
        cluster.meta.apply(&command, 1).expect("it is applied");
    };
    set(&mut cluster, "no");
    for _ in 0..5 {
        cluster.step(|_| true);
        cluster.apply_proposed();
    }
    assert_eq!((cluster.meta.version, cluster.stores[&0].prepared), (1, 1), "the old program may come back");
    set(&mut cluster, "yes");
    for _ in 0..5 {
        cluster.step(|_| true);
        cluster.apply_proposed();
    }
    assert_eq!((cluster.meta.version, cluster.stores[&0].prepared), (2, 2));
    assert!(cluster.meta.set(CONFIG_FINISH_UPGRADES, "later").is_err());
}

#[test]
fn a_store_that_joins_must_support_the_clusters_version() {
    let mut cluster = Cluster::new(1);
    cluster.meta.version = NEWEST_VERSION.max(2);
    let version = cluster.meta.version;
    let command = MetaCommand::Join { facts: facts(9), newest: None };
    let refused = MetaError::OldProgram { newest: 1, version };
    assert_eq!(cluster.meta.clone().apply(&command, 1), Err(refused));
    assert!(!cluster.join(version - 1));
    assert!(cluster.join(version));
    assert!(cluster.join(version + 1), "a newer program supports the version, too");
}

#[test]
fn a_join_is_written_as_old_programs_read_it_until_the_version_has_risen() {
    let text = |newest| {
        let command = MetaCommand::Join { facts: facts(1), newest };
        String::from_utf8(command.encode()[1..].to_vec()).expect("JSON")
    };
    assert!(!text(None).contains("newest"));
    assert!(text(Some(2)).contains("\"newest\":2"));
}
