use std::os::unix::fs::symlink;

use super::*;

/// A tree of files like the kernel's, with two disks. `nvme0n1` has two partitions and a logical
/// volume over each, and `sda` has no identity of its own. `md0` spans both.
struct Kernel(tempfile::TempDir);

impl Kernel {
    fn new() -> Kernel {
        let kernel = Kernel(tempfile::tempdir().unwrap());
        kernel.write("proc/sys/kernel/random/boot_id", "boot-1\n");
        kernel.block("pci/nvme/nvme0n1", "259:0", &[]);
        for (file, content) in [
            ("device/model", "Fast 1T   \n"),
            ("device/serial", " S3\n"),
            ("wwid", "eui.7\n"),
            ("size", "2048\n"),
        ] {
            kernel.write(&format!("sys/devices/pci/nvme/nvme0n1/{file}"), content);
        }
        for part in 1..=2 {
            let path = format!("pci/nvme/nvme0n1/nvme0n1p{part}");
            kernel.block(&path, &format!("259:{part}"), &[]);
            kernel.write(&format!("sys/devices/{path}/partition"), "1\n");
            let volume = format!("virtual/block/dm-{}", part - 1);
            kernel.block(&volume, &format!("253:{}", part - 1), &[&path]);
        }
        kernel.block("pci/ata/sda", "8:0", &[]);
        kernel.write("sys/devices/pci/ata/sda/device/model", "Slow\n");
        kernel.block("virtual/block/md0", "9:0", &["virtual/block/dm-1", "pci/ata/sda"]);
        kernel
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn block(&self, path: &str, number: &str, slaves: &[&str]) {
        let devices = self.0.path().join("sys/devices");
        self.write(&format!("sys/devices/{path}/dev"), &format!("{number}\n"));
        let link = self.0.path().join("sys/dev/block").join(number);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(devices.join(path), link).unwrap();
        fs::create_dir_all(devices.join(path).join("slaves")).unwrap();
        for slave in slaves {
            let name = Path::new(slave).file_name().unwrap();
            symlink(devices.join(slave), devices.join(path).join("slaves").join(name)).unwrap();
        }
    }

    fn ground(&self, major: u32, minor: u32) -> Ground {
        Ground::read_under(self.0.path(), libc::makedev(major, minor), None).unwrap()
    }
}

fn disks(ground: &Ground) -> Vec<&str> {
    let Underlying::Disks { disks } = &ground.device else { panic!("{ground:?}") };
    disks.iter().map(|disk| disk.name.as_str()).collect()
}

#[test]
fn a_partition_and_a_volume_are_the_disks_that_they_are_on() {
    let kernel = Kernel::new();
    let disk = Disk {
        name: "nvme0n1".into(),
        number: "259:0".into(),
        model: "Fast 1T".into(),
        serial: "S3".into(),
        wwid: "eui.7".into(),
        bytes: 1 << 20,
    };
    let whole = kernel.ground(259, 0);
    assert_eq!(whole, Ground { boot_id: "boot-1".into(), device: Underlying::Disks { disks: vec![disk] } });
    for (major, minor) in [(259, 1), (259, 2), (253, 0), (253, 1)] {
        assert_eq!(kernel.ground(major, minor), whole, "{major}:{minor}");
    }
    assert_eq!(disks(&kernel.ground(9, 0)), ["nvme0n1", "sda"]);
    assert_ne!(kernel.ground(9, 0).device_key(), whole.device_key());
    assert_eq!(whole.to_string(), "nvme0n1 Fast 1T S3");
}

#[test]
fn what_has_no_disk_is_known_by_its_number_and_an_emulated_device_by_its_control_block() {
    let kernel = Kernel::new();
    let tmpfs = kernel.ground(0, 42);
    assert_eq!(tmpfs.device, Underlying::FileSystem { number: "0:42".into() });
    assert_ne!(tmpfs.device_key(), kernel.ground(0, 43).device_key());
    let control = |name: &str| {
        let path = kernel.0.path().join(name);
        Ground::read_under(kernel.0.path(), libc::makedev(8, 0), Some(&path)).unwrap()
    };
    assert_ne!(control("a").device_key(), control("b").device_key(), "though both are on one disk");
    assert_eq!(control("a").host_key(), Some("boot-1"));
    fs::remove_file(kernel.0.path().join("proc/sys/kernel/random/boot_id")).unwrap();
    let unknown = kernel.ground(8, 0);
    assert_eq!((unknown.host_key(), unknown.device_key()), (None, None), "nobody shares what is not known");
}

#[test]
fn this_machine_has_a_ground() {
    let dir = tempfile::tempdir().unwrap();
    let ground = Ground::read(dir.path(), None).unwrap();
    assert_eq!(ground, Ground::read(dir.path(), None).unwrap());
    assert!(!ground.is_another_device(&ground));
    assert!(Ground::read(Path::new("/nonexistent"), None).is_err());
    let text = serde_json::to_string(&ground).unwrap();
    assert_eq!(serde_json::from_str::<Ground>(&text).unwrap(), ground);
}

#[test]
fn another_disk_is_another_device_and_another_boot_or_number_is_not() {
    let disk = |number: &str, model: &str, serial: &str| Disk {
        number: number.into(),
        model: model.into(),
        serial: serial.into(),
        bytes: 1 << 30,
        ..Disk::default()
    };
    let on = |boot: &str, disks: &[&Disk]| Ground {
        boot_id: boot.into(),
        device: Underlying::Disks { disks: disks.iter().copied().cloned().collect() },
    };
    let (a, b) = (disk("8:0", "M", "1"), disk("8:0", "M", "2"));
    assert!(on("x", &[&a]).is_another_device(&on("x", &[&b])), "it was exchanged under its number");
    assert!(!on("x", &[&a]).is_another_device(&on("y", &[&disk("8:16", "M", "1")])), "it has moved");
    assert!(!on("x", &[&a, &b]).is_another_device(&on("y", &[&b, &a])));
    assert!(on("x", &[&a, &b]).is_another_device(&on("x", &[&a])));
    assert!(on("x", &[&a, &a]).is_another_device(&on("x", &[&a, &b])));
    // Disks without a serial number.
    let (m, n) = (disk("8:0", "M", ""), disk("8:0", "N", ""));
    assert!(!on("x", &[&m]).is_another_device(&on("y", &[&m])), "the host was booted");
    assert!(on("x", &[&m]).is_another_device(&on("y", &[&n])), "another host, or another disk in it");
    assert!(on("x", &[&m]).is_another_device(&on("x", &[&disk("8:16", "M", "")])));
    let of = |device: Underlying| Ground { boot_id: "x".into(), device };
    let tmpfs = |number: &str| of(Underlying::FileSystem { number: number.into() });
    let emulated = |control: &str| of(Underlying::Emulated { control: control.into() });
    assert!(!tmpfs("0:1").is_another_device(&tmpfs("0:2")), "every mount has another number");
    assert!(tmpfs("0:1").is_another_device(&on("x", &[&a])));
    assert!(emulated("a").is_another_device(&emulated("b")));
    assert!(
        emulated("a").is_another_device(&on("x", &[&a])) && !emulated("a").is_another_device(&emulated("a"))
    );
}

#[test]
fn there_is_room_where_tests_write() {
    let dir = tempfile::tempdir().unwrap();
    assert!(free_bytes(dir.path()).unwrap() > 0);
    assert!(free_bytes(&dir.path().join("absent")).is_err());
}
