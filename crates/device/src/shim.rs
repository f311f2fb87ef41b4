//! The location of the preload library, and the environment that puts a process on an emulated
//! device.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Environment variable with the path of the control block.
pub const DEVICE_ENV: &str = "STEELYARD_DEVICE";
/// Environment variable with the directory whose files are on the device.
pub const ROOT_ENV: &str = "STEELYARD_DEVICE_ROOT";
/// Environment variable with the path of that directory's [`Image`](crate::Image). Set only if
/// unsynced data is to be lost on purpose.
pub const IMAGE_ENV: &str = "STEELYARD_DEVICE_IMAGE";
/// Environment variable with the path of the preload library, if that is not beside the program.
pub const SHIM_ENV: &str = "STEELYARD_DEVSHIM";

const LIBRARY: &str = "libdevshim.so";

#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    #[error("STEELYARD_DEVSHIM names {}, which does not exist", .0.display())]
    NotWhereNamed(PathBuf),
    #[error("the device emulation library libdevshim.so is not in {}: build it with `cargo build --release -p steelyard-devshim`, or name it in STEELYARD_DEVSHIM", list(.0))]
    NotFound(Vec<PathBuf>),
    #[error("the program's own path is unknown: {0}")]
    NoProgram(#[from] std::io::Error),
}

/// Returns the path of the preload library. `STEELYARD_DEVSHIM` takes precedence. Otherwise the
/// library is searched for beside this program, in `deps/` beside it, one directory up (for a test
/// program in `deps/`), and in `../lib`.
pub fn shim_path() -> Result<PathBuf, ShimError> {
    if let Some(named) = env::var_os(SHIM_ENV).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        return if named.is_file() { Ok(named) } else { Err(ShimError::NotWhereNamed(named)) };
    }
    let program = env::current_exe()?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    search(beside).ok_or_else(|| ShimError::NotFound(places(beside)))
}

/// Returns the variables to add to the environment of a process whose files under `root` are to be
/// on the device at `control`. Libraries that are preloaded already stay.
pub fn preload_env(control: &Path, root: &Path) -> Result<Vec<(&'static str, OsString)>, ShimError> {
    let mut preload = shim_path()?.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    Ok(vec![("LD_PRELOAD", preload), (DEVICE_ENV, control.into()), (ROOT_ENV, root.into())])
}

fn places(beside: &Path) -> Vec<PathBuf> {
    let mut places = vec![beside.to_owned(), beside.join("deps")];
    if let Some(above) = beside.parent() {
        places.extend([above.to_owned(), above.join("lib")]);
    }
    places
}

fn search(beside: &Path) -> Option<PathBuf> {
    places(beside).into_iter().map(|place| place.join(LIBRARY)).find(|path| path.is_file())
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_beside_the_program_and_in_lib() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, lib) = (dir.path().join("bin"), dir.path().join("lib"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        assert_eq!(search(&bin), None);
        std::fs::write(lib.join(LIBRARY), b"").unwrap();
        assert_eq!(search(&bin), Some(lib.join(LIBRARY)));
        std::fs::write(bin.join(LIBRARY), b"").unwrap();
        assert_eq!(search(&bin), Some(bin.join(LIBRARY)));
        let message = ShimError::NotFound(places(&bin)).to_string();
        assert!(message.contains("cargo build") && message.contains(bin.to_str().unwrap()));
    }
}
