//! A store that answers from a script, for tests of clients.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Starts a store that answers each request with `script(request as text)`. `None` closes the
/// connection.
pub async fn scripted(script: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let script = Arc::new(script);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let script = script.clone();
            tokio::spawn(async move {
                let mut input = String::new();
                let mut bytes = [0u8; 4096];
                while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                    input.push_str(&String::from_utf8_lossy(&bytes[..count]));
                    while let Some((words, rest)) = request(&input) {
                        input = rest;
                        let Some(answer) = script(&words) else { return };
                        if stream.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

/// Returns the first complete request of `input` as words, and the rest of the input.
fn request(input: &str) -> Option<(String, String)> {
    let mut lines = input.split("\r\n");
    let count: usize = lines.next()?.strip_prefix('*')?.parse().ok()?;
    let mut words = Vec::new();
    for _ in 0..count {
        lines.next()?.strip_prefix('$')?;
        words.push(lines.next()?);
    }
    let rest: Vec<&str> = lines.collect();
    (!rest.is_empty()).then(|| (words.join(" "), rest.join("\r\n")))
}

/// Returns the answer to `CLUSTER SLOTS` of a store that has all slots.
pub fn slots(address: SocketAddr) -> String {
    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{}\r\n", address.port())
}
