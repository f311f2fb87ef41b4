//! An emulated device in a temporary directory, and the exercise program on it.

#![allow(dead_code)] // Each test program uses a part of it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use device::{preload_env, Control, Image, Profile, IMAGE_ENV};

pub struct Device {
    pub control: Control,
    dir: tempfile::TempDir,
}

impl Device {
    /// Creates a device, on a RAM file system if there is one, because a real disk's own time would
    /// hide the emulated one.
    pub fn new(profile: &str, factor: f64) -> Device {
        let ram = Path::new("/dev/shm");
        let place = if ram.is_dir() { ram.to_owned() } else { std::env::temp_dir() };
        let dir = tempfile::tempdir_in(place).unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let profile: Profile = profile.parse().unwrap();
        let control = Control::create(&dir.path().join("device"), &profile, factor).unwrap();
        Device { control, dir }
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn file(&self, name: &str) -> String {
        self.data().join(name).display().to_string()
    }

    /// Returns a path beside the device's directory.
    pub fn outside(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// Starts an image. Data that is not synced after this can be lost.
    pub fn image(&self) -> Image {
        Image::create(&self.dir.path().join("image"), &self.data()).unwrap()
    }

    pub fn exercise_with_image(&self, image: &Image) -> Exercise {
        let mut command = Command::new(env!("CARGO_BIN_EXE_devshim-exercise"));
        command.envs(preload_env(self.control.path(), &self.data()).unwrap()).env(IMAGE_ENV, image.path());
        Exercise::start(command)
    }

    pub fn exercise(&self) -> Exercise {
        let mut command = Command::new(env!("CARGO_BIN_EXE_devshim-exercise"));
        command.envs(preload_env(self.control.path(), &self.data()).unwrap());
        Exercise::start(command)
    }
}

pub struct Exercise {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Exercise {
    pub fn start(mut command: Command) -> Exercise {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Exercise { child, to, from }
    }

    /// Sends a line and returns the value of the answer, or the error number.
    pub fn ask(&mut self, line: &str) -> Result<u64, i32> {
        writeln!(self.to, "{line}").unwrap();
        let mut answer = String::new();
        self.from.read_line(&mut answer).unwrap();
        match answer.trim().split_once(' ') {
            Some(("ok", value)) => Ok(value.parse().unwrap()),
            Some(("error", number)) => Err(number.parse().unwrap()),
            _ => panic!("'{line}' was answered '{answer}'"),
        }
    }
}

impl Exercise {
    /// Kills the process with SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Exercise {
    fn drop(&mut self) {
        self.kill();
    }
}
