//! Tests of snapshots over a real RocksDB: their content, the rows that an ingest replaces, and the
//! state after a crash.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use bytes::Bytes;
use steelyard_rocks::snapshot::{
    FileSink, Files, IngestStep, Manifest, SnapshotError, SnapshotFile, Start, FILE_BYTES, MANIFEST,
};
use steelyard_rocks::{Keyspace, Options};
use storage::{rows, Reader, RegionState, StorageError, WriteSet};
use types::{RegionDescriptor, RegionId, Slot, SlotRange, META_REGION};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Damage = fn(&Path);

const REGION: RegionId = 7;
const SLOTS: SlotRange = SlotRange { first: 100, last: 199 };

fn open(dir: &Path) -> Keyspace {
    let options = Options { disable_auto_compactions: true, ..Options::default().scaled(1.0 / 256.0) };
    Keyspace::open(dir, &options).unwrap()
}

fn descriptor(region: RegionId, slots: SlotRange) -> RegionDescriptor {
    RegionDescriptor::founded(region, Some(slots), &[0, 1, 2])
}

fn data_row(slot: Slot, number: u32) -> Bytes {
    let (from, _) = rows::table_range(slot, rows::TABLE_KEYS);
    [&from[..], &number.to_be_bytes()].concat().into()
}

/// Returns the region's state and descriptor rows as apply writes them.
fn own_rows(descriptor: &RegionDescriptor, index: u64) -> Vec<(Bytes, Option<Bytes>)> {
    let mut state = RegionState::default();
    (state.applied_index, state.applied_term) = (index, index / 10);
    let state_row = rows::region_state_row(descriptor.id);
    let descriptor_row = rows::region_descriptor_row(descriptor.id);
    vec![(state_row, Some(state.encode())), (descriptor_row, Some(descriptor.encode()))]
}

/// Writes a region at `index` with `per_slot` rows in each slot, whose values begin with `value`.
fn fill(keyspace: &Keyspace, descriptor: &RegionDescriptor, index: u64, per_slot: u32, value: &str) {
    let slots = descriptor.slots.unwrap();
    let data = (slots.first..=slots.last).flat_map(|slot| (0..per_slot).map(move |n| data_row(slot, n)));
    // The values do not compress, so that files fill up.
    let data = data.map(|row| {
        let hash = types::key_hash(&row);
        let value = format!("{value} {hash:016x}{:016x}", types::key_hash(&hash.to_be_bytes()));
        (row, Some(Bytes::from(value)))
    });
    let rows = data.chain(own_rows(descriptor, index)).collect();
    keyspace.write(WriteSet { ranges_deleted: vec![], rows });
}

fn all_rows(reader: &dyn Reader) -> Rows {
    let mut found = Rows::new();
    let visit = &mut |row: &[u8], value: &[u8]| {
        found.insert(row.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    reader.scan(b"a", b"z", visit).unwrap();
    found
}

fn of_region(rows: &Rows, descriptor: &RegionDescriptor) -> Rows {
    let (from, to) = rows::slots_range(descriptor.slots.unwrap());
    let own = rows::region_state_row(descriptor.id);
    let is_of = |row: &[u8]| (from[..] <= *row && *row < to[..]) || row.starts_with(&own);
    rows.iter().filter(|(row, _)| is_of(row)).map(|(row, value)| (row.clone(), value.clone())).collect()
}

fn unlimited(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A store with a received snapshot of a region, old rows of the same region, and rows of
/// neighbouring regions.
struct Receiver {
    dir: tempfile::TempDir,
    manifest: Manifest,
    /// The store's rows after the ingest.
    expected: Rows,
    old: Option<(u64, SlotRange)>,
}

impl Receiver {
    const INDEX: u64 = 500;

    fn rows(&self) -> std::path::PathBuf {
        self.dir.path().join("rows")
    }

    fn received(&self) -> std::path::PathBuf {
        self.dir.path().join("received")
    }

    /// Creates the store. `old` is the index and the slots of its own old peer, if it had one.
    fn new(old: Option<(u64, SlotRange)>) -> Receiver {
        let dir = tempfile::tempdir().unwrap();
        let new = descriptor(REGION, SLOTS);
        let (manifest, of_new) = {
            let source = open(&dir.path().join("source"));
            fill(&source, &new, Self::INDEX, 20, "new");
            let at = dir.path().join("received");
            let manifest = source.write_snapshot(REGION, &at, 16 << 10, &mut unlimited).unwrap();
            (manifest, of_region(&all_rows(&source), &new))
        };
        let keyspace = open(&dir.path().join("rows"));
        fill(&keyspace, &descriptor(6, SlotRange { first: 0, last: 99 }), 40, 2, "before");
        fill(&keyspace, &descriptor(8, SlotRange { first: 240, last: 300 }), 50, 2, "behind");
        let mut expected = all_rows(&keyspace);
        expected.extend(of_new);
        if let Some((index, slots)) = old {
            fill(&keyspace, &descriptor(REGION, slots), index - 1, 30, "old");
        }
        keyspace.flush().unwrap();
        Receiver { dir, manifest, expected, old }
    }

    /// Opens the store. Some of the old rows are on the device, some in a memtable, and some are
    /// not in the snapshot.
    fn open(&self) -> Keyspace {
        let keyspace = open(&self.rows());
        if let Some((index, slots)) = self.old {
            fill(&keyspace, &descriptor(REGION, slots), index, 2, "older");
        }
        keyspace
    }

    fn ingest(&self, keyspace: &Keyspace) -> Result<(), SnapshotError> {
        keyspace.ingest_snapshot(&self.received(), &self.manifest, &[SlotRange { first: 100, last: 239 }])
    }
}

const OLD: Option<(u64, SlotRange)> = Some((300, SlotRange { first: 100, last: 239 }));

#[test]
fn an_ingested_snapshot_replaces_the_regions_rows_and_no_others() {
    for old in [None, OLD, Some((300, SlotRange { first: 120, last: 130 }))] {
        let receiver = Receiver::new(old);
        assert!(receiver.manifest.files.len() > 3, "cut into {} files", receiver.manifest.files.len());
        assert_eq!((receiver.manifest.index, receiver.manifest.term), (500, 50));
        let keyspace = receiver.open();
        receiver.ingest(&keyspace).unwrap();
        assert_eq!(all_rows(&keyspace), receiver.expected);
        drop(keyspace);
        assert_eq!(all_rows(&open(&receiver.rows())), receiver.expected, "it is durable without a flush");
    }
}

#[test]
fn a_crash_at_any_step_leaves_an_ingest_that_can_be_done_again() {
    let steps = [IngestStep::Verified, IngestStep::Deleted, IngestStep::Flushed, IngestStep::Ingested];
    for crash_at in steps {
        let receiver = Receiver::new(OLD);
        let crashed = tempfile::tempdir().unwrap();
        let keyspace = receiver.open();
        let before = all_rows(&keyspace);
        let replaced = [OLD.unwrap().1];
        let result = keyspace.ingest_snapshot_by_steps(
            &receiver.received(),
            &receiver.manifest,
            &replaced,
            Files::Verified,
            &mut |step| match step == crash_at {
                false => Ok(()),
                true => {
                    copy_tree(receiver.dir.path(), crashed.path());
                    Err(StorageError::Engine("the crash".into()))
                }
            },
        );
        assert!(matches!(result, Err(SnapshotError::Storage(StorageError::Engine(_)))), "{result:?}");

        let (rows, received) = (crashed.path().join("rows"), crashed.path().join("received"));
        let survivor = open(&rows);
        let found = of_region(&all_rows(&survivor), &receiver.manifest.descriptor);
        let own = rows::region_state_row(REGION);
        let index_found = found.contains_key(&own[..]).then(|| storage::load_state(&survivor, REGION));
        match (crash_at, index_found) {
            // At `Verified` the rows that were flushed before the ingest; at `Deleted` also those
            // that were in RAM.
            (IngestStep::Verified | IngestStep::Deleted, Some(Ok(state))) => {
                assert_eq!(state.applied_index, if crash_at == IngestStep::Verified { 299 } else { 300 });
                assert_eq!(found.len(), of_region(&before, &receiver.manifest.descriptor).len());
            }
            (IngestStep::Flushed, None) => assert!(found.is_empty()),
            (IngestStep::Ingested, Some(Ok(_))) => assert_eq!(all_rows(&survivor), receiver.expected),
            (_, other) => panic!("{crash_at:?}: {other:?}"),
        }
        survivor.ingest_snapshot(&received, &receiver.manifest, &replaced).unwrap();
        assert_eq!(all_rows(&survivor), receiver.expected, "{crash_at:?}");
        drop(survivor);
        assert_eq!(all_rows(&open(&rows)), receiver.expected, "{crash_at:?}");
    }
}

/// RocksDB links the files, writes their sequence numbers, and only then changes its manifest. A
/// crash in between leaves changed files that belong to both the snapshot and RocksDB.
#[test]
fn files_that_an_unfinished_ingest_has_changed_can_still_be_ingested() {
    let receiver = Receiver::new(OLD);
    let [linked, image] = ["linked", "image"].map(|name| receiver.dir.path().join(name));
    fs::create_dir(&linked).unwrap();
    for entry in fs::read_dir(receiver.received()).unwrap() {
        let entry = entry.unwrap();
        fs::hard_link(entry.path(), linked.join(entry.file_name())).unwrap();
    }
    let original = fs::read(linked.join("000001.sst")).unwrap();
    let keyspace = receiver.open();
    let observe = &mut |step| {
        if step == IngestStep::Flushed {
            copy_tree(&receiver.rows(), &image);
        }
        Ok(())
    };
    let replaced = [OLD.unwrap().1];
    keyspace
        .ingest_snapshot_by_steps(
            &receiver.received(),
            &receiver.manifest,
            &replaced,
            Files::Unknown,
            observe,
        )
        .unwrap();
    assert!(!receiver.received().join("000001.sst").exists(), "files are moved, not copied");
    assert_ne!(fs::read(linked.join("000001.sst")).unwrap(), original, "the case that this test is about");

    let survivor = open(&image);
    survivor.ingest_snapshot(&linked, &receiver.manifest, &replaced).unwrap();
    assert_eq!(all_rows(&survivor), receiver.expected);
    assert_eq!(all_rows(&keyspace), receiver.expected, "the links that RocksDB has are not written to");
    drop(keyspace);
    assert_eq!(all_rows(&open(&receiver.rows())), receiver.expected);
}

/// Compaction does not write the rows again.
#[test]
fn rows_that_replace_none_go_to_the_last_level() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(&dir.path().join("source"));
    let (target, made) = (open(&dir.path().join("target")), dir.path().join("made"));
    fill(&source, &descriptor(REGION, SLOTS), 10, 20, "new");
    let neighbour = descriptor(8, SlotRange { first: 200, last: 299 });
    fill(&target, &neighbour, 10, 20, "other");
    target.write(WriteSet { ranges_deleted: vec![], rows: own_rows(&descriptor(REGION, SLOTS), 0) });
    let manifest = source.write_snapshot(REGION, &made, FILE_BYTES, &mut unlimited).unwrap();
    target.ingest_snapshot(&made, &manifest, &[]).unwrap();
    let levels = target.stats().unwrap().files_per_level;
    assert_eq!(levels.last(), Some(&2), "the neighbour's file and the region's: {levels:?}");
    assert_eq!(of_region(&all_rows(&target), &descriptor(REGION, SLOTS)).len(), 2002);
}

#[test]
fn an_ingest_that_was_done_needs_no_files() {
    let receiver = Receiver::new(OLD);
    let keyspace = receiver.open();
    receiver.ingest(&keyspace).unwrap();
    fs::remove_dir_all(receiver.received()).unwrap();
    receiver.ingest(&keyspace).unwrap();
    assert_eq!(all_rows(&keyspace), receiver.expected);
}

#[test]
fn rows_that_came_as_far_by_the_log_are_made_durable_in_place_of_an_ingest() {
    let receiver = Receiver::new(None);
    let keyspace = receiver.open();
    fill(&keyspace, &descriptor(REGION, SLOTS), Receiver::INDEX, 20, "new");
    receiver.ingest(&keyspace).unwrap();
    let image = tempfile::tempdir().unwrap();
    copy_tree(&receiver.rows(), image.path());
    assert_eq!(all_rows(&open(image.path())), receiver.expected);
    assert!(receiver.received().join("000001.sst").exists());
}

#[test]
fn damage_is_found_before_anything_is_deleted() {
    let damage: [(&str, Damage); 4] = [
        ("a flipped bit", |dir| {
            let mut bytes = fs::read(dir.join("000002.sst")).unwrap();
            bytes[1000] ^= 4;
            fs::write(dir.join("000002.sst"), bytes).unwrap();
        }),
        ("a missing file", |dir| fs::remove_file(dir.join("000002.sst")).unwrap()),
        ("a short file", |dir| {
            fs::File::options().write(true).open(dir.join("000001.sst")).unwrap().set_len(100).unwrap()
        }),
        ("files exchanged", |dir| {
            fs::copy(dir.join("000001.sst"), dir.join("000002.sst")).unwrap();
        }),
    ];
    for (what, damage) in damage {
        let receiver = Receiver::new(OLD);
        let keyspace = receiver.open();
        let before = all_rows(&keyspace);
        damage(&receiver.received());
        let error = receiver.ingest(&keyspace).unwrap_err();
        let is_missing = matches!(&error, SnapshotError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
        assert!(is_missing || matches!(error, SnapshotError::Damaged { .. }), "{what}: {error}");
        assert_eq!(is_missing, what == "a missing file");
        assert_eq!(all_rows(&keyspace), before, "{what}");
    }
}

#[test]
fn slots_that_have_gone_to_another_region_are_left_to_it() {
    let receiver = Receiver::new(OLD);
    let keyspace = receiver.open();
    // A new region has come to this store with some of the old peer's slots.
    let split_off = descriptor(9, SlotRange { first: 210, last: 220 });
    fill(&keyspace, &split_off, 700, 3, "split off");
    // The expected rows include the old peer's rows in these slots that the fill of three per slot
    // does not overwrite. The ingest must keep them.
    let mut expected = receiver.expected.clone();
    expected.extend(of_region(&all_rows(&keyspace), &split_off));
    receiver.ingest(&keyspace).unwrap();
    assert_eq!(all_rows(&keyspace), expected);

    expected.retain(|row, _| !of_region(&receiver.expected, &receiver.manifest.descriptor).contains_key(row));
    keyspace.destroy_region(REGION, &[OLD.unwrap().1]).unwrap();
    assert_eq!(all_rows(&keyspace), expected);
}

#[test]
fn the_snapshots_own_slots_are_replaced_without_being_named() {
    let receiver = Receiver::new(Some((300, SLOTS)));
    let keyspace = receiver.open();
    keyspace.ingest_snapshot(&receiver.received(), &receiver.manifest, &[]).unwrap();
    assert_eq!(all_rows(&keyspace), receiver.expected);
}

#[test]
fn two_snapshots_close_together_leave_the_second_one() {
    let receiver = Receiver::new(OLD);
    let second = receiver.dir.path().join("second");
    let source = open(&receiver.dir.path().join("source"));
    let deleted = WriteSet { ranges_deleted: vec![(data_row(150, 0), data_row(160, 5))], rows: vec![] };
    source.write(deleted);
    fill(&source, &descriptor(REGION, SLOTS), 501, 1, "newest");
    let manifest = source.write_snapshot(REGION, &second, FILE_BYTES, &mut unlimited).unwrap();
    let expected = of_region(&all_rows(&source), &manifest.descriptor);

    let keyspace = receiver.open();
    receiver.ingest(&keyspace).unwrap();
    keyspace.ingest_snapshot(&second, &manifest, &[SLOTS]).unwrap();
    assert_eq!(of_region(&all_rows(&keyspace), &manifest.descriptor), expected);
    assert_ne!(expected, of_region(&receiver.expected, &manifest.descriptor));
}

#[test]
fn writes_after_an_ingest_go_over_its_rows() {
    let receiver = Receiver::new(OLD);
    let keyspace = receiver.open();
    receiver.ingest(&keyspace).unwrap();
    fill(&keyspace, &descriptor(REGION, SLOTS), 501, 1, "later");
    let image = tempfile::tempdir().unwrap();
    keyspace.flush().unwrap();
    copy_tree(&receiver.rows(), image.path());
    for keyspace in [keyspace, open(image.path())] {
        let value = keyspace.get(&data_row(150, 0)).unwrap().unwrap();
        assert!(value.starts_with(b"later"), "{value:?}");
        assert_eq!(storage::load_state(&keyspace, REGION).unwrap().applied_index, 501);
    }
}

#[test]
fn no_value_from_before_the_ingest_is_read_from_ram() {
    let receiver = Receiver::new(OLD);
    let keyspace = receiver.open();
    let (both, gone, own) = (data_row(150, 3), data_row(150, 25), rows::region_state_row(REGION));
    let neighbour = data_row(50, 1);
    for row in [&both, &gone, &own, &neighbour] {
        keyspace.get(row).unwrap().unwrap();
        assert!(keyspace.get_if_in_ram(row).is_some());
    }
    // Reads between the steps must leave nothing in the caches either.
    let observe = &mut |step| {
        let found = keyspace.get(&both)?;
        keyspace.get(&gone)?;
        match step {
            IngestStep::Verified => assert!(found.unwrap().starts_with(b"old")),
            IngestStep::Deleted | IngestStep::Flushed => assert_eq!(found, None),
            IngestStep::Ingested => assert!(found.unwrap().starts_with(b"new")),
        }
        Ok(())
    };
    let replaced = [OLD.unwrap().1];
    keyspace
        .ingest_snapshot_by_steps(
            &receiver.received(),
            &receiver.manifest,
            &replaced,
            Files::Unknown,
            observe,
        )
        .unwrap();
    assert!(keyspace.get(&both).unwrap().unwrap().starts_with(b"new"));
    assert!(keyspace.get(&gone).unwrap().is_none());
    assert_eq!(storage::load_state(&keyspace, REGION).unwrap().applied_index, 500);
    assert!(keyspace.get_if_in_ram(&neighbour).is_some());
}

#[test]
fn no_range_from_before_the_ingest_is_known() {
    let receiver = Receiver::new(OLD);
    let keyspace = receiver.open();
    let (from, to) = rows::slots_range(SlotRange { first: 0, last: 300 });
    let learn = || (0..40).filter(|_| keyspace.learn_range(&from, &to).unwrap()).count();
    let of_slots = |rows: Rows| -> Rows {
        rows.into_iter().filter(|(row, _)| from[..] <= row[..] && row[..] < to[..]).collect()
    };
    assert!(learn() > 20);
    // Ranges that are learnt between the steps are as flash is then.
    let observe = &mut |step: IngestStep| {
        let learnt = learn();
        assert!(step == IngestStep::Verified || step == IngestStep::Flushed || learnt > 0);
        Ok(())
    };
    let (replaced, files) = ([OLD.unwrap().1], Files::Unknown);
    let (dir, manifest) = (receiver.received(), &receiver.manifest);
    keyspace.ingest_snapshot_by_steps(&dir, manifest, &replaced, files, observe).unwrap();
    learn();
    let expected = of_slots(receiver.expected.clone());
    assert_eq!(of_slots(all_rows(&keyspace.view())), expected);
    // More rows than a scan in RAM visits are read in parts, the first of them from known ranges.
    assert_eq!(of_slots(all_rows(&keyspace)), expected);
    let slot = rows::slots_range(SlotRange { first: 150, last: 150 });
    (0..4).for_each(|_| assert!(keyspace.learn_range(&slot.0, &slot.1).is_ok()));
    let mut found = Rows::new();
    let scanned = keyspace.in_ram().scan(&slot.0, &slot.1, &Cell::new(usize::MAX), &mut |row, value| {
        found.insert(row.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    assert_eq!(found.len(), 20, "all of them new");
    assert!(found.values().all(|value| value.starts_with(b"new")));
}

#[test]
fn a_view_from_before_the_ingest_still_sees_what_it_saw() {
    let receiver = Receiver::new(OLD);
    let keyspace = receiver.open();
    let view = keyspace.view();
    let before = all_rows(&view);
    receiver.ingest(&keyspace).unwrap();
    assert_eq!(all_rows(&view), before);
    assert_eq!(all_rows(&keyspace), receiver.expected);
}

#[test]
fn a_snapshot_is_of_the_moment_at_which_its_making_began() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(&dir.path().join("source"));
    let region = descriptor(REGION, SLOTS);
    fill(&source, &region, 30, 200, "early");
    let mut overtaken = 0;
    let manifest = source
        .write_snapshot(REGION, &dir.path().join("made"), 64 << 10, &mut |_| {
            overtaken += 1;
            fill(&source, &region, 30 + overtaken, 200, "late");
            source.flush().unwrap();
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(overtaken > 2);
    assert_eq!((manifest.index, manifest.term), (30, 3));
    let other = open(&dir.path().join("other"));
    other.ingest_snapshot(&dir.path().join("made"), &manifest, &[SLOTS]).unwrap();
    let found = all_rows(&other);
    let (from, _) = rows::slots_range(SLOTS);
    assert!(found
        .iter()
        .filter(|(row, _)| row[..] >= from[..] && row[0] == b'd')
        .all(|(_, v)| v.starts_with(b"early")));
    assert_eq!(found.len(), 100 * 200 + 2);
    assert_eq!(storage::load_state(&other, REGION).unwrap().applied_index, 30);
}

#[test]
fn an_empty_region_and_the_meta_region_have_snapshots_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(&dir.path().join("source"));
    let empty = descriptor(REGION, SLOTS);
    let meta = RegionDescriptor::founded(META_REGION, None, &[0, 1]);
    let of_cluster = (Bytes::from_static(b"m-row"), Some(Bytes::from_static(b"state")));
    let rows: Vec<_> =
        [of_cluster].into_iter().chain(own_rows(&meta, 9)).chain(own_rows(&empty, 5)).collect();
    source.write(WriteSet { ranges_deleted: vec![], rows });

    let other = open(&dir.path().join("other"));
    fill(&other, &empty, 4, 3, "old");
    let stale = (Bytes::from_static(b"m-stale"), Some(Bytes::from_static(b"state")));
    other.write(WriteSet { ranges_deleted: vec![], rows: vec![stale] });
    for (region, slots, files) in [(REGION, vec![SLOTS], 1), (META_REGION, vec![], 2)] {
        let at = dir.path().join(format!("made-{region}"));
        let manifest = source.write_snapshot(region, &at, FILE_BYTES, &mut unlimited).unwrap();
        assert_eq!(manifest.files.len(), files);
        assert_eq!(Manifest::read(&at).unwrap(), manifest);
        other.ingest_snapshot(&at, &manifest, &slots).unwrap();
    }
    assert_eq!(all_rows(&other), all_rows(&source));
    let error = source.write_snapshot(99, &dir.path().join("none"), FILE_BYTES, &mut unlimited).unwrap_err();
    assert!(matches!(error, SnapshotError::NotHere(99)));
    assert!(!dir.path().join("none").exists());
}

#[test]
fn what_is_cancelled_or_cut_short_leaves_nothing_that_looks_like_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(&dir.path().join("source"));
    fill(&source, &descriptor(REGION, SLOTS), 30, 300, "value");
    let (made, image) = (dir.path().join("made"), dir.path().join("image"));
    let unfinished = Keyspace::unfinished_snapshot(&made);
    let mut calls = 0;
    let error = source
        .write_snapshot(REGION, &made, 256 << 10, &mut |bytes| {
            calls += 1;
            assert!(bytes > 0 && !made.exists() && !unfinished.join(MANIFEST).exists());
            if calls < 3 {
                return ControlFlow::Continue(());
            }
            copy_tree(&unfinished, &image);
            ControlFlow::Break(())
        })
        .unwrap_err();
    assert!(matches!(error, SnapshotError::Cancelled));
    assert!(!made.exists() && !unfinished.exists());

    // The directory is as a crash would have left it. It does not disturb another attempt.
    copy_tree(&image, &unfinished);
    assert!(Manifest::read(&unfinished).is_err());
    let manifest = source.write_snapshot(REGION, &made, 256 << 10, &mut unlimited).unwrap();
    manifest.verify(&made).unwrap();
    assert!(!unfinished.exists());
}

#[test]
fn a_hundred_thousand_rows_come_over_through_many_files_and_the_pace_hears_of_each_byte() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(&dir.path().join("source"));
    let region = descriptor(REGION, SLOTS);
    fill(&source, &region, 30, 1000, "value");
    let mut paced = 0;
    let made = dir.path().join("made");
    let pace = &mut |bytes| {
        paced += bytes;
        ControlFlow::Continue(())
    };
    let manifest = source.write_snapshot(REGION, &made, 512 << 10, pace).unwrap();
    let expected = all_rows(&source);
    assert_eq!(expected.len(), 100_002);
    let bytes: u64 = expected.iter().map(|(row, value)| (row.len() + value.len()) as u64).sum();
    assert!(paced <= bytes && paced > bytes - (256 << 10) - 1000, "{paced} of {bytes}");
    assert!(manifest.files.len() > 5, "{}", manifest.files.len());
    let sizes: Vec<u64> = (0..manifest.files.len())
        .map(|file| fs::metadata(made.join(Manifest::file_name(file))).unwrap().len())
        .collect();
    assert_eq!(manifest.bytes(), sizes.iter().sum::<u64>());
    let other = open(&dir.path().join("other"));
    other.ingest_snapshot(&made, &manifest, &[SLOTS]).unwrap();
    assert_eq!(all_rows(&other), expected);
}

#[test]
fn a_destroyed_region_leaves_no_row_and_takes_none_of_its_neighbours() {
    let receiver = Receiver::new(OLD);
    let keyspace = receiver.open();
    let (mine, slots) = (descriptor(REGION, OLD.unwrap().1), OLD.unwrap().1);
    let mut expected = all_rows(&keyspace);
    let gone = of_region(&expected, &mine);
    expected.retain(|row, _| !gone.contains_key(row));
    assert!(!gone.is_empty() && !expected.is_empty());
    for _ in 0..2 {
        keyspace.destroy_region(REGION, &[slots]).unwrap();
        assert_eq!(all_rows(&keyspace), expected);
    }
    keyspace.flush().unwrap();
    drop(keyspace);
    let keyspace = open(&receiver.rows());
    assert_eq!(all_rows(&keyspace), expected);
    receiver.ingest(&keyspace).unwrap();
    assert_eq!(all_rows(&keyspace), receiver.expected, "the region can be received again");
}

#[test]
fn verified_files_are_looked_at_only_for_their_lengths() {
    let receiver = Receiver::new(OLD);
    let keyspace = receiver.open();
    let (before, replaced) = (all_rows(&keyspace), [OLD.unwrap().1]);
    let ingest = |dir: &Path| keyspace.ingest_verified_snapshot(dir, &receiver.manifest, &replaced);
    let short = receiver.dir.path().join("short");
    copy_tree(&receiver.received(), &short);
    fs::File::options().write(true).open(short.join("000002.sst")).unwrap().set_len(100).unwrap();
    assert!(matches!(ingest(&short), Err(SnapshotError::Damaged { .. })));
    assert_eq!(all_rows(&keyspace), before);
    ingest(&receiver.received()).unwrap();
    assert_eq!(all_rows(&keyspace), receiver.expected);
}

#[test]
fn the_space_of_a_destroyed_region_is_given_back_when_asked_for() {
    let receiver = Receiver::new(OLD);
    let keyspace = receiver.open();
    receiver.ingest(&keyspace).unwrap();
    keyspace.destroy_region(REGION, &[SLOTS]).unwrap();
    keyspace.flush().unwrap();
    let (rows, held) = (all_rows(&keyspace), keyspace.stats().unwrap().live_sst_bytes);
    assert!(held > receiver.manifest.bytes());
    keyspace.reclaim(OLD.unwrap().1);
    let left = keyspace.stats().unwrap().live_sst_bytes;
    assert!(left < held - receiver.manifest.bytes() / 2, "{left} of {held}");
    assert_eq!(all_rows(&keyspace), rows);
}

/// Returns the bytes that this thread has read from files.
fn read_by_this_thread() -> u64 {
    let io = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    line.parse().unwrap()
}

#[test]
fn the_source_reads_a_row_once_and_a_file_that_it_wrote_never() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(&dir.path().join("source"));
    fill(&source, &descriptor(REGION, SLOTS), 30, 1000, "value");
    let made = |name: &str| {
        let before = read_by_this_thread();
        let at = dir.path().join(name);
        let manifest = source.write_snapshot(REGION, &at, 1 << 20, &mut unlimited).unwrap();
        (read_by_this_thread() - before, manifest.bytes())
    };
    let (read, bytes) = made("of-memtables");
    assert!(bytes > 3 << 20 && read < bytes / 100, "{read} bytes were read to write {bytes}");
    source.flush().unwrap();
    let (read, bytes) = made("of-flash");
    // An iterator has read ahead beyond the end of a file, by 2 MiB at most.
    assert!(read > bytes / 2, "the rows were on flash");
    let files = bytes.div_ceil(1 << 20);
    assert!(read < bytes + files * (2 << 20), "{read} bytes were read to write {bytes}");
}

/// Keeps the files that are built, and stops after a number of bytes.
struct Kept<'a> {
    dir: &'a Path,
    open: Vec<u8>,
    files: Vec<SnapshotFile>,
    starts: Vec<Start>,
    bytes_left: usize,
    longest: usize,
}

impl<'a> Kept<'a> {
    fn new(dir: &'a Path) -> Kept<'a> {
        fs::create_dir_all(dir).unwrap();
        let (open, files, starts) = (Vec::new(), Vec::new(), vec![Start::default()]);
        Kept { dir, open, files, starts, bytes_left: usize::MAX, longest: 0 }
    }
}

impl FileSink for Kept<'_> {
    type Error = SnapshotError;

    fn add(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.longest = self.longest.max(bytes.len());
        self.open.extend_from_slice(bytes);
        self.bytes_left = self.bytes_left.checked_sub(bytes.len()).ok_or(SnapshotError::Cancelled)?;
        Ok(())
    }

    fn end_file(&mut self, file: SnapshotFile, next: Start) -> Result<(), SnapshotError> {
        let path = self.dir.join(Manifest::file_name(self.files.len()));
        fs::write(&path, std::mem::take(&mut self.open)).unwrap();
        file.verify(&path)?;
        self.files.push(file);
        self.starts.push(next);
        Ok(())
    }
}

#[test]
fn files_that_are_built_from_a_view_go_on_behind_the_last_whole_one() {
    const FILE: u64 = 512 << 10;
    let dir = tempfile::tempdir().unwrap();
    let source = open(&dir.path().join("source"));
    let region = descriptor(REGION, SLOTS);
    fill(&source, &region, 30, 1000, "early");
    source.flush().unwrap();
    fill(&source, &region, 31, 10, "later");
    let view = source.view_region(REGION).unwrap();
    let expected = all_rows(&source);
    let at = dir.path().join("built");
    let mut kept = Kept::new(&at);
    kept.bytes_left = (2 * FILE + FILE / 2) as usize;
    let broken = view.build(&Start::default(), FILE, &mut kept);
    assert!(matches!(broken, Err(SnapshotError::Cancelled)));
    assert_eq!((kept.files.len(), kept.starts.len()), (2, 3));
    assert!(kept.longest <= 2 << 20, "the file does not gather in memory");

    // The rows are replaced, flushed and compacted while the view is open.
    for index in 40..44 {
        fill(&source, &region, index, 600, "late");
        source.flush().unwrap();
    }
    source.reclaim(SLOTS);
    (kept.open, kept.bytes_left) = (Vec::new(), usize::MAX);
    let start = kept.starts[2].clone();
    view.build(&start, FILE, &mut kept).unwrap();
    assert!(kept.files.len() > 4, "{}", kept.files.len());
    // Beginning at the end builds nothing.
    let (end, files) = (kept.starts.last().unwrap().clone(), kept.files.len());
    view.build(&end, FILE, &mut kept).unwrap();
    assert_eq!(kept.files.len(), files);
    let manifest = view.manifest(kept.files);
    assert_eq!((manifest.index, manifest.term), (31, 3));
    let other = open(&dir.path().join("other"));
    other.ingest_snapshot(&at, &manifest, &[SLOTS]).unwrap();
    assert_eq!(all_rows(&other), expected);
}

#[test]
fn a_view_that_is_held_for_long_keeps_few_rows_in_ram() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(&dir.path().join("source"));
    let memtable = source.options().write_buffer_size;
    fill(&source, &descriptor(REGION, SLOTS), 30, 30, "value");
    assert!(source.unflushed_bytes() > memtable / 8);
    let view = source.view_region(REGION).unwrap();
    assert!(source.unflushed_bytes() > memtable / 8, "such a view flushes nothing");
    drop(view);
    let _view = source.view_region_for_long(REGION).unwrap();
    assert_eq!(source.unflushed_bytes(), 0);
}
