//! The state after a loss of power: synced data, and nothing that depends on unsynced data.

mod bench;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bench::{Device, Exercise};
use device::{Image, Survival};
use types::Draw;

struct Disk {
    device: Device,
    image: Image,
    process: Exercise,
}

impl Disk {
    fn new() -> Disk {
        let device = Device::new("nvm", 1.0);
        let image = device.image();
        let process = device.exercise_with_image(&image);
        Disk { device, image, process }
    }

    fn ask(&mut self, words: &str) {
        // A word with `@` stands for a file on the device.
        let words: Vec<String> = words
            .split(' ')
            .map(|word| match word.strip_prefix('@') {
                Some(name) => self.device.file(name),
                None => word.to_owned(),
            })
            .collect();
        self.process.ask(&words.join(" ")).unwrap();
    }

    fn ask_all(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| self.ask(line));
    }

    /// Kills the process with SIGKILL and starts a new one.
    fn kill(&mut self) {
        self.process.kill();
        self.process = self.device.exercise_with_image(&self.image);
    }

    /// Kills the process, loses power and returns the remaining files by name.
    fn lose_power(&mut self, survival: Survival) -> BTreeMap<String, Vec<u8>> {
        self.process.kill();
        self.image.lose_power(survival).unwrap();
        self.process = self.device.exercise_with_image(&self.image);
        self.tree()
    }

    fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        fn walk(dir: &Path, prefix: &str, found: &mut BTreeMap<String, Vec<u8>>) {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
                if entry.path().is_dir() {
                    found.insert(format!("{name}/"), Vec::new());
                    walk(&entry.path(), &format!("{name}/"), found);
                } else {
                    found.insert(name, fs::read(entry.path()).unwrap());
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(&self.device.data(), "", &mut found);
        found
    }
}

fn tree(files: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
    files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect()
}

#[test]
fn a_file_is_there_when_its_directory_was_synced_and_holds_what_it_had_when_it_was() {
    let mut disk = Disk::new();
    disk.ask_all(&["open @a", "fill 0 65 3", "sync"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[]), "the name was never synced");

    disk.ask_all(&["open @a", "fill 0 65 3", "sync-dir @"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("a", b"")]), "its bytes were never synced");

    disk.ask_all(&["open @a", "fill 0 65 3", "sync", "fill 1 66 5"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("a", b"AAA")]), "what came after the sync");

    disk.ask_all(&["open @a", "truncate 1"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("a", b"AAA")]), "a truncation");
    disk.ask_all(&["open @a", "truncate 1", "truncate 3", "sync"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("a", b"A\0\0")]), "cut off and grown");
    disk.ask_all(&["open @a", "allocate 5", "sync"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("a", b"A\0\0\0\0")]), "allocated");
}

#[test]
fn renames_removals_and_directories_hang_on_the_sync_of_their_directory() {
    let mut disk = Disk::new();
    disk.ask_all(&["open @old", "fill 0 65 2", "sync", "open @gone", "fill 0 66 2", "sync", "sync-dir @"]);
    disk.ask_all(&["rename @old @new", "unlink @gone"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("gone", b"BB"), ("old", b"AA")]));
    disk.ask_all(&["rename @old @new", "unlink @gone", "sync-dir @"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("new", b"AA")]));

    // Over another file, as when a pointer to the newest file is replaced.
    disk.ask_all(&["open @next", "fill 0 67 2", "sync", "rename @next @new"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("new", b"AA")]));
    disk.ask_all(&["open @next", "fill 0 67 2", "sync", "rename @next @new", "sync-dir @"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("new", b"CC")]));

    // Files in a directory whose own name is not durable are lost.
    disk.ask_all(&["make-dir @d", "open @d/in", "fill 0 68 1", "sync", "sync-dir @d"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("new", b"CC")]));
    disk.ask_all(&["make-dir @d", "open @d/in", "fill 0 68 1", "sync", "sync-dir @d", "sync-dir @"]);
    disk.ask("rename @d @e");
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("d/", b""), ("d/in", b"D"), ("new", b"CC")]));
    disk.ask_all(&["rename @d @e", "sync-dir @"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("e/", b""), ("e/in", b"D"), ("new", b"CC")]));
}

#[test]
fn a_killed_process_makes_nothing_durable_and_its_successors_syncs_do() {
    let mut disk = Disk::new();
    disk.ask_all(&["open @a", "fill 0 65 3", "sync", "sync-dir @", "fill 4096 66 3"]);
    disk.kill();
    assert_eq!(disk.tree()["a"].len(), 4099, "the page cache outlives the process");
    let mut whole = vec![0; 4099];
    whole[..3].fill(b'A');
    whole[4096..].fill(b'B');
    disk.ask_all(&["open @a", "sync"]);
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("a", &whole)]));
    disk.ask_all(&["open @a", "fill 0 67 1"]);
    disk.kill();
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("a", &whole)]));
}

#[test]
fn a_failed_sync_makes_nothing_durable() {
    let mut disk = Disk::new();
    disk.ask_all(&["open @a", "fill 0 65 3", "sync-dir @"]);
    disk.device.control.set_fault(device::Fault::SyncEio, 1);
    assert_eq!(disk.process.ask("sync"), Err(libc::EIO));
    assert_eq!(disk.lose_power(Survival::Synced), tree(&[("a", b"")]));
}

#[test]
fn deleted_files_leave_the_image_and_the_devices_room() {
    let mut disk = Disk::new();
    disk.device.control.set_capacity(Some(1 << 20));
    for round in 0..12 {
        disk.ask_all(&["open @a", "fill 0 65 300000", "sync", "sync-dir @"]);
        if round % 2 == 0 {
            disk.ask_all(&["rename @a @b", "unlink @b"]);
        } else {
            disk.ask("unlink @a");
        }
        disk.ask("sync-dir @");
    }
    let left = |part: &str| fs::read_dir(disk.image.path().join(part)).unwrap().count();
    assert_eq!((left("files"), left("pins")), (0, 0));
}

/// A model of the exercise program: its durable and its current state.
#[derive(Default)]
struct Model {
    /// The current and the last synced bytes of each file. The index identifies a file through
    /// renames.
    files: Vec<(Vec<u8>, Vec<u8>)>,
    now: BTreeMap<String, usize>,
    synced: BTreeMap<String, usize>,
}

impl Model {
    fn durable(&self) -> BTreeMap<String, Vec<u8>> {
        self.synced.iter().map(|(name, &file)| (name.clone(), self.files[file].1.clone())).collect()
    }
}

#[test]
fn whatever_is_done_exactly_what_was_synced_is_left_and_torn_states_keep_all_of_it_or_newer() {
    let names = ["a", "b", "c", "d"];
    for seed in 1..40u64 {
        let mut draw = Draw::new(seed);
        let mut disk = Disk::new();
        let mut model = Model::default();
        for _ in 0..60 {
            let name = names[draw.below(4) as usize];
            match draw.below(10) {
                0..=4 => {
                    let (offset, count) = (draw.below(20_000), 1 + draw.below(9_000));
                    let byte = 1 + draw.below(255);
                    disk.ask_all(&[&format!("open @{name}"), &format!("fill {offset} {byte} {count}")]);
                    let file = *model.now.entry(name.into()).or_insert_with(|| {
                        model.files.push(Default::default());
                        model.files.len() - 1
                    });
                    let bytes = &mut model.files[file].0;
                    bytes.resize(bytes.len().max((offset + count) as usize), 0);
                    bytes[offset as usize..(offset + count) as usize].fill(byte as u8);
                }
                5 | 6 => {
                    if let Some(&file) = model.now.get(name) {
                        disk.ask_all(&[&format!("open @{name}"), "sync"]);
                        model.files[file].1 = model.files[file].0.clone();
                    }
                }
                7 => {
                    let to = names[draw.below(4) as usize];
                    if model.now.contains_key(name) && to != name {
                        disk.ask(&format!("rename @{name} @{to}"));
                        let file = model.now.remove(name).unwrap();
                        model.now.insert(to.into(), file);
                    }
                }
                8 => {
                    if let Some(&file) = model.now.get(name) {
                        let length = draw.below(20_000);
                        disk.ask_all(&[&format!("open @{name}"), &format!("truncate {length}")]);
                        model.files[file].0.resize(length as usize, 0);
                        if draw.below(2) == 0 {
                            disk.ask(&format!("unlink @{name}"));
                            model.now.remove(name);
                        }
                    }
                }
                _ => {
                    disk.ask("sync-dir @");
                    model.synced = model.now.clone();
                    if draw.below(3) == 0 {
                        disk.kill();
                    }
                }
            }
        }
        if seed % 2 == 0 {
            assert_eq!(disk.lose_power(Survival::Synced), model.durable(), "seed {seed}");
            continue;
        }
        let listings: [BTreeSet<&String>; 2] = [model.now.keys().collect(), model.synced.keys().collect()];
        let (now, synced) = (model.now.clone(), model.synced.clone());
        let left = disk.lose_power(Survival::Torn(seed));
        let names: BTreeSet<&String> = left.keys().collect();
        assert!(listings.contains(&names), "seed {seed}: {names:?} of {listings:?}");
        let possible = |names: &BTreeMap<String, usize>| {
            names.len() == left.len()
                && left.iter().all(|(name, bytes)| {
                    names.get(name).is_some_and(|&file| is_between(bytes, &model.files[file]))
                })
        };
        assert!(possible(&now) || possible(&synced), "seed {seed}");
    }
}

/// Returns true if every sector has its current or its synced content, and the length is one of the
/// two.
fn is_between(left: &[u8], (now, synced): &(Vec<u8>, Vec<u8>)) -> bool {
    let sector = |bytes: &[u8], at: usize| {
        let mut sector = [0; 512];
        let part = bytes.get(at..bytes.len().min(at + 512)).unwrap_or_default();
        sector[..part.len()].copy_from_slice(part);
        sector
    };
    // The length may cut the last sector.
    let cut = |mut sector: [u8; 512], at: usize| {
        sector[(left.len() - at).min(512)..].fill(0);
        sector
    };
    (left.len() == now.len() || left.len() == synced.len())
        && (0..left.len()).step_by(512).all(|at| {
            let found = sector(left, at);
            [sector(now, at), sector(synced, at)].into_iter().any(|choice| cut(choice, at) == found)
        })
}
