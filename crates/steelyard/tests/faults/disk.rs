//! A store's emulated device, which can fail, fill up, lose unsynced data, or report a wrong time.

use device::{preload_env, Control, Fault, Image, Profile, Survival, EVERY, IMAGE_ENV};

use crate::stores::Store;

pub struct Disk {
    pub control: Control,
    image: Image,
}

impl Disk {
    /// Puts a store that has not been started on its own device without a speed limit.
    pub fn under(store: &mut Store) -> Disk {
        std::fs::create_dir_all(&store.dir).expect("a data directory");
        let profile: Profile = "write=100GB/s,read=100GB/s".parse().expect("a profile");
        let control = Control::create(&store.dir.with_extension("device"), &profile, 1.0).expect("a device");
        let image = Image::create(&store.dir.with_extension("image"), &store.dir).expect("an image");
        let environment = preload_env(control.path(), &store.dir).expect("the preload library");
        store.environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        store.environment.push((IMAGE_ENV.to_owned(), image.path().into()));
        Disk { control, image }
    }

    /// Makes the device lose unsynced data. The store must have been killed.
    pub fn lose_power(&self, survival: Survival) {
        self.image.lose_power(survival).expect("a state that the disk could be left in");
    }

    /// Treats the current content of the directory as synced. The directory must not be in use.
    pub fn renew(&self) {
        Image::create(self.image.path(), self.image.root()).expect("an image");
    }

    pub fn fail(&self, fault: Fault) {
        self.control.set_fault(fault, EVERY);
    }

    pub fn repair(&self) {
        self.control.clear_faults();
    }

    /// Returns the bytes that the directory uses on disk.
    pub fn used(&self) -> u64 {
        fn tree(dir: &std::path::Path) -> u64 {
            use std::os::unix::fs::MetadataExt;
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries
                .map(|entry| match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => tree(&entry.path()),
                    Ok(metadata) => metadata.blocks() * 512,
                    Err(_) => 0,
                })
                .sum()
        }
        tree(self.image.root())
    }

    /// Limits the device so that `bytes` more can be written.
    pub fn leave_room(&self, bytes: u64) {
        self.control.set_capacity(Some(self.used() + bytes));
    }

    pub fn leave_all_room(&self) {
        self.control.set_capacity(None);
    }
}

/// Starts stores on emulated devices.
pub fn on_devices(plan: &crate::Plan) -> (crate::Stores, Vec<Disk>) {
    let mut stores = crate::Stores::prepare(plan);
    let disks = under_all(&mut stores);
    stores.all.iter_mut().for_each(|store| store.spawn());
    stores.await_ready();
    (stores, disks)
}

pub fn under_all(stores: &mut crate::Stores) -> Vec<Disk> {
    stores.all.iter_mut().map(Disk::under).collect()
}
