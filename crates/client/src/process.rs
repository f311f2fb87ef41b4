//! Child processes that end with the process that started them.
//!
//! A child has a process group of its own: Ctrl-C at the terminal reaches only the parent, which
//! then ends its children in order. It has a parent-death signal: it gets SIGTERM when the parent
//! is killed. Signals are only sent to the pid of an unreaped child. The kernel cannot have given
//! that pid to another process.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    getpid, getppid, getpriority_process, kill_process, set_parent_process_death_signal, setpriority_process,
    Pid, Signal,
};

/// A running child. Dropping it ends it: SIGTERM, then SIGKILL after [`GRACE`].
#[derive(Debug)]
pub struct Child {
    name: String,
    inner: std::process::Child,
    ended: Option<ExitStatus>,
}

/// Maximum time for a clean shutdown. After it, the child is killed.
pub const GRACE: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(10);

impl Child {
    /// Starts `command`. The parent-death signal depends on the calling *thread*, so that thread
    /// must live as long as the child should. The main thread does.
    pub fn spawn(name: impl Into<String>, command: &mut Command) -> io::Result<Child> {
        let name = name.into();
        die_with_parent(command.process_group(0));
        let inner = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy();
            io::Error::new(error.kind(), format!("{name} ({program}) cannot be started: {error}"))
        })?;
        Ok(Child { name, inner, ended: None })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// Returns the exit status, or `None` while the child runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.inner.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Sends SIGTERM.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGSTOP: the process stands still until [`resume`](Self::resume).
    pub fn suspend(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Sends SIGCONT.
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.inner.kill();
            self.ended = self.inner.wait().ok();
        }
    }

    /// Waits until the child ends by itself. Returns false if it still runs after `patience`.
    pub fn wait(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.ended().is_none() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }

    fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            let _ = kill_process(Pid::from_child(&self.inner), signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.terminate();
        if !self.wait(GRACE) {
            self.kill();
        }
    }
}

/// Ends many children at once. The grace period covers all of them together.
pub fn end_all<'a>(children: impl IntoIterator<Item = &'a mut Child>) {
    let mut children: Vec<&mut Child> = children.into_iter().collect();
    children.iter_mut().for_each(|child| child.terminate());
    let deadline = Instant::now() + GRACE;
    for child in children {
        if !child.wait(deadline.saturating_duration_since(Instant::now())) {
            child.kill();
        }
    }
}

/// Runs a program to its end. The calling thread waits for the program, so the parent-death signal
/// ends the program if this process ends.
pub fn output(command: &mut Command) -> io::Result<Output> {
    die_with_parent(command);
    command.stdin(Stdio::null()).output()
}

#[allow(unsafe_code)]
fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    // SAFETY: between fork and exec only prctl, getppid and _exit after an error run. All of them
    // are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            // The parent may have died before this call of prctl.
            if getppid() != Some(parent) {
                return Err(Errno::SRCH.into());
            }
            Ok(())
        });
    }
}

/// The CPU priority of a thread that may lower it and raise it again.
#[derive(Debug)]
pub struct ThreadPriority {
    normal: i32,
}

impl ThreadPriority {
    /// Returns the calling thread's priority. `None` if the kernel would not let the thread raise
    /// it again. The value must stay on this thread.
    pub fn changeable() -> Option<ThreadPriority> {
        let normal = getpriority_process(None).ok()?;
        let is_raised = normal < LOWEST && set_nice(normal + 1).and_then(|()| set_nice(normal)).is_ok();
        is_raised.then_some(ThreadPriority { normal })
    }

    /// Lowers the calling thread's priority as far as possible, or restores it.
    pub fn set_low(&mut self, is_low: bool) {
        set_nice(if is_low { LOWEST } else { self.normal }).expect("changing the priority worked before");
    }
}

/// The nice value of the lowest priority.
const LOWEST: i32 = 19;

/// Sets the nice value of the calling thread, which is what Linux means by no pid.
fn set_nice(nice: i32) -> rustix::io::Result<()> {
    setpriority_process(None, nice)
}

/// Returns `count` different loopback ports that were free just now. This process returns a port
/// again only after thousands of others.
///
/// The ports are below the range from which the kernel takes ports of outgoing connections. So no
/// connection takes one before its server listens, nor while the server is down. Processes begin
/// their search at different ports.
pub fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    const FIRST: u16 = 11_000;
    const SPAN: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 997) as u16 * 20;
    let next = || FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed) % SPAN) % SPAN;
    let free =
        (0..SPAN).map(|_| next()).filter(|port| port_is_free(SocketAddr::from(([127, 0, 0, 1], *port))));
    let ports: Vec<u16> = free.take(count).collect();
    match ports.len() == count {
        true => Ok(ports),
        false => Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no {count} free ports"))),
    }
}

/// Returns true if a server could listen at `address` now.
pub fn port_is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Child::spawn("sh", Command::new("sh").args(["-c", script])).unwrap()
    }

    fn exists(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let child = shell("exec sleep 1000");
        let pid = child.pid();
        assert!(exists(pid));
        drop(child);
        assert!(!exists(pid));
    }

    #[test]
    fn a_killed_child_is_reaped_and_its_end_is_known() {
        let mut child = shell("trap '' TERM; exec sleep 1000");
        assert!(child.ended().is_none());
        child.kill();
        assert!(!exists(child.pid()));
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.ended().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn a_program_that_is_not_there_is_named_in_the_error() {
        let error = Child::spawn("store 3", &mut Command::new("/no/such/program")).unwrap_err();
        assert!(error.to_string().contains("store 3 (/no/such/program)"), "{error}");
    }

    #[test]
    fn children_end_together() {
        let mut children: Vec<Child> = (0..3).map(|_| shell("exec sleep 1000")).collect();
        end_all(&mut children);
        assert!(children.iter_mut().all(|child| child.ended().is_some()));
    }

    #[test]
    fn a_priority_that_can_be_restored_is_restored() {
        std::thread::spawn(|| {
            let nice = || getpriority_process(None).unwrap();
            let before = nice();
            if let Some(mut priority) = ThreadPriority::changeable() {
                priority.set_low(true);
                assert_eq!(nice(), LOWEST);
                priority.set_low(false);
                assert_eq!(nice(), before);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn free_ports_differ() {
        let mut ports = free_ports(8).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 8);
    }
}
