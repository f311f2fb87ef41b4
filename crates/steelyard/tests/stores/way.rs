//! A way to a server that can be cut: a port of this process that forwards connections.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub struct Way {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    /// Forwards a free port of the address `near` to the server.
    pub fn to(server: SocketAddr, near: IpAddr) -> Way {
        let listener = TcpListener::bind((near, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (is_cut, open) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (cut, streams) = (is_cut.clone(), open.clone());
        // The threads end with the process of the tests.
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(server) else { continue };
                // `cut` sets the flag before it takes the lock, so no connection outlives it.
                let mut streams = streams.lock().unwrap();
                if cut.load(Ordering::Relaxed) {
                    continue;
                }
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    streams.push(from.try_clone().unwrap());
                    std::thread::spawn(move || carry(from, to));
                }
            }
        });
        Way { address, is_cut, open }
    }

    /// Returns the address at which clients reach the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections, and closes new ones at once.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        for stream in std::mem::take(&mut *self.open.lock().unwrap()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn mend(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let copied = io::copy(&mut Read::by_ref(&mut from), &mut to);
    let _ = (copied, to.flush(), to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}
