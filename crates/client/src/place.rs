//! The file systems that stores' directories are on.

use std::path::Path;

/// Returns the type of the file system that holds `path` or its nearest existing parent, as
/// `/proc/mounts` names it. Empty if unknown.
pub fn file_system(path: &Path) -> String {
    let Some(real) = nearest_existing(path) else { return String::new() };
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    mount_type(&mounts, &real).unwrap_or_default().to_owned()
}

fn nearest_existing(path: &Path) -> Option<std::path::PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok())
}

fn mount_type<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        let (Some(_), Some(point), Some(kind)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        // Spaces in mount points are written \040.
        let point = point.replace("\\040", " ");
        let depth = Path::new(&point).components().count();
        // A later mount on the same point hides the earlier one.
        if path.starts_with(&point) && best.is_none_or(|(known, _)| depth >= known) {
            best = Some((depth, kind));
        }
    }
    best.map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_and_latest_mount_holds_a_path() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n/dev/b /mnt/a\\040b xfs rw 0 0\n/dev/c / btrfs rw 0 0\n";
        let of = |path: &str| mount_type(mounts, Path::new(path)).unwrap();
        assert_eq!(
            [of("/dev/shm/x"), of("/mnt/a b/x"), of("/mnt/a"), of("/dev/shmx")],
            ["tmpfs", "xfs", "btrfs", "btrfs"]
        );
    }
}
