//! Child processes that end with their starter, however that ends.
//!
//! A child gets a process group of its own (a Ctrl-C at the terminal reaches the starter alone, which then
//! ends its children in order) and a parent-death signal (it gets SIGTERM when the starter is killed).
//! Signals go to the pid of an unreaped child only, which the kernel cannot have given to another process.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// A running child. Dropping it ends it: SIGTERM, then SIGKILL after [`GRACE`].
#[derive(Debug)]
pub struct Child {
    name: String,
    inner: std::process::Child,
    ended: Option<ExitStatus>,
}

/// How long a child may take over a clean shutdown before it is killed.
pub const GRACE: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(10);

impl Child {
    /// Starts `command`. The parent-death signal is bound to the calling *thread*: call this from one that
    /// lives as long as the child should, which the main thread does.
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

    /// How the child ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.inner.try_wait().ok().flatten();
        }
        self.ended
    }

    /// SIGTERM.
    pub fn terminate(&mut self) {
        self.signal(libc::SIGTERM);
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.inner.kill();
            self.ended = self.inner.wait().ok();
        }
    }

    /// Waits until the child ends by itself. `false`: it still runs.
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

    #[allow(unsafe_code)]
    fn signal(&mut self, signal: i32) {
        if self.ended().is_none() {
            // SAFETY: a system call without pointers; the pid is our unreaped child's.
            unsafe { libc::kill(self.inner.id() as libc::pid_t, signal) };
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

/// Ends many children at once: the grace period runs for all of them together.
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

/// Runs a program to its end, which comes at the latest with this process's: the calling thread waits for
/// it, and so lives as long.
pub fn output(command: &mut Command) -> io::Result<Output> {
    die_with_parent(command);
    command.stdin(Stdio::null()).output()
}

#[allow(unsafe_code)]
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only prctl, getppid and _exit-by-error run, all async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the signal was asked for.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
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
    /// The calling thread's. None if the kernel would not let it raise its priority again. The value must stay on the
    /// thread that made it.
    pub fn changeable() -> Option<ThreadPriority> {
        let normal = nice();
        let is_raised = normal < LOWEST && set_nice(normal + 1).and_then(|()| set_nice(normal)).is_ok();
        is_raised.then_some(ThreadPriority { normal })
    }

    /// Lowers the calling thread's priority as far as it goes, or restores it.
    pub fn set_low(&mut self, is_low: bool) {
        set_nice(if is_low { LOWEST } else { self.normal }).expect("it was tried before");
    }
}

/// The nice value of the lowest priority.
const LOWEST: i32 = 19;

#[allow(unsafe_code)]
fn nice() -> i32 {
    // SAFETY: a system call without pointers. To Linux 0 is the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

#[allow(unsafe_code)]
fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: a system call without pointers. To Linux 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `count` loopback ports that were free a moment ago, all different; this process gives one again only after
/// thousands of others.
///
/// They are below those that the kernel gives to outgoing connections, so that no connection takes one before
/// its server listens, nor while the server is down; and processes begin to look at different places.
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

/// Whether a server could listen there now.
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
        assert_eq!(child.ended().unwrap().signal(), Some(libc::SIGKILL));
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
