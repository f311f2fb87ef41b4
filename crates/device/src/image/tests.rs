use super::*;

fn directory() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (root, image) = (dir.path().join("data"), dir.path().join("image"));
    fs::create_dir(&root).unwrap();
    (dir, root, image)
}

#[test]
fn what_was_there_at_the_beginning_is_durable_and_what_came_unsynced_is_gone() {
    let (_dir, root, path) = directory();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/kept"), "kept").unwrap();
    let image = Image::create(&path, &root).unwrap();
    fs::write(root.join("a/b/kept"), "changed, and longer").unwrap();
    fs::write(root.join("new"), "new").unwrap();
    fs::rename(root.join("a/b"), root.join("a/moved")).unwrap();
    image.lose_power(Survival::Synced).unwrap();
    assert_eq!(fs::read(root.join("a/b/kept")).unwrap(), b"kept");
    assert!(!root.join("new").exists() && !root.join("a/moved").exists());
    // The same again from that state.
    fs::remove_dir_all(root.join("a")).unwrap();
    image.lose_power(Survival::Synced).unwrap();
    assert_eq!(fs::read(root.join("a/b/kept")).unwrap(), b"kept");
}

#[test]
fn torn_states_hang_on_the_seed_alone() {
    let states: Vec<Vec<u8>> = [1, 1, 2, 3, 4, 5, 6, 7, 8]
        .into_iter()
        .map(|seed| {
            let (_dir, root, path) = directory();
            fs::write(root.join("file"), vec![b'o'; 64 << 10]).unwrap();
            let image = Image::create(&path, &root).unwrap();
            let inode = fs::metadata(root.join("file")).unwrap().ino();
            fs::write(root.join("file"), vec![b'n'; 80 << 10]).unwrap();
            image.dirty_table().unwrap().insert(inode).unwrap().mark(0, 80 << 10);
            image.lose_power(Survival::Torn(seed)).unwrap();
            fs::read(root.join("file")).unwrap()
        })
        .collect();
    assert_eq!(states[0], states[1]);
    let lengths: std::collections::BTreeSet<usize> = states.iter().map(Vec::len).collect();
    assert_eq!(lengths, [64 << 10, 80 << 10].into());
    // Sectors are whole, and some states hold both old and new ones.
    let mixed = |state: &&Vec<u8>| state[..64 << 10].contains(&b'o') && state[..64 << 10].contains(&b'n');
    assert!(states.iter().any(|state| mixed(&state)));
    assert!(states
        .iter()
        .all(|state| state.chunks(512).all(|sector| sector.iter().all(|&b| b == sector[0]))));
}

#[test]
fn dirty_ranges_grow_and_are_cleaned_only_if_nothing_was_added() {
    let (_dir, root, path) = directory();
    let image = Image::create(&path, &root).unwrap();
    let table = image.dirty_table().unwrap();
    assert!(table.find(7).is_none());
    let slot = table.insert(7).unwrap();
    assert_eq!(slot.range(), 0);
    slot.mark(5000, 5001);
    slot.mark(20_000, 20_480);
    slot.mark(9, 9);
    let range = slot.range();
    assert_eq!(Slot::bytes(range), (4096, 20_480));
    slot.mark(0, 1);
    slot.cleaned(range);
    assert_eq!(Slot::bytes(slot.range()), (0, 20_480), "what came meanwhile would be forgotten");
    // A write within the dirty range is still a write, so the range must stay dirty.
    let range = slot.range();
    slot.mark(8192, 8200);
    slot.cleaned(range);
    assert_eq!(Slot::bytes(slot.range()), (0, 20_480));
    slot.cleaned(slot.range());
    assert_eq!(slot.range(), 0);
    slot.mark(100 << 30, 101 << 30);
    assert!(Slot::bytes(slot.range()).0 <= 100 << 30 && Slot::bytes(slot.range()).1 == u64::MAX);
    slot.cleaned(slot.range());
    // Another mapping sees the same table, and a removed file frees its slot.
    table.remove(7);
    let again = image.dirty_table().unwrap();
    assert!(again.find(7).is_none());
    (1..5000).for_each(|inode| again.insert(inode).unwrap().mark_all());
    assert!((1..5000).all(|inode| table.find(inode).is_some_and(|slot| slot.range() != 0)));
}

#[test]
fn a_file_that_no_one_told_of_is_empty_or_gone() {
    let states: std::collections::BTreeSet<Option<u64>> = (0..20)
        .map(|seed| {
            let (_dir, root, path) = directory();
            let image = Image::create(&path, &root).unwrap();
            fs::write(root.join("new"), b"").unwrap();
            image.lose_power(Survival::Torn(seed)).unwrap();
            fs::metadata(root.join("new")).ok().map(|file| file.len())
        })
        .collect();
    assert_eq!(states, [None, Some(0)].into());
}
