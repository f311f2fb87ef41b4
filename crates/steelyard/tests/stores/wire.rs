//! A blocking RESP connection to one store, for tests.

use std::net::SocketAddr;
use std::time::Duration;

use client::connection::Connection;
use resp::Reply;
use tokio::runtime::Runtime;

/// Maximum time until a reply. It is longer than every bounded wait of a store, so a later reply
/// counts as a hang and fails the test.
const HANG: Duration = Duration::from_secs(15);

/// Maximum number of bytes of a request's word in a message.
const WORD_BYTES_SHOWN: usize = 80;

/// Returns the words of a request, each cut to what a person reads.
fn brief(words: &[&str]) -> String {
    let cut = |word: &&str| match word.get(..WORD_BYTES_SHOWN) {
        Some(start) if word.len() > WORD_BYTES_SHOWN => format!("{start}... ({} bytes)", word.len()),
        _ => word.to_string(),
    };
    words.iter().map(cut).collect::<Vec<_>>().join(" ")
}

pub struct Wire {
    runtime: Runtime,
    connection: Connection,
    address: SocketAddr,
    /// Maximum time to wait for a reply.
    patience: Duration,
}

impl Wire {
    pub fn open(address: SocketAddr) -> Wire {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let connection = runtime
            .block_on(Connection::open(address, HANG))
            .unwrap_or_else(|error| panic!("no connection to {address}: {error}"));
        Wire { runtime, connection, address, patience: HANG }
    }

    /// Waits longer for each reply, for requests whose bytes take long to send.
    pub fn with_patience(self, patience: Duration) -> Wire {
        Wire { patience, ..self }
    }

    /// Opens a connection and sends requests one by one. Returns `None` if the connection cannot be
    /// made or is closed.
    pub fn ask(address: SocketAddr, questions: &[&[&str]]) -> Option<Vec<Reply>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let asked = async {
            let mut connection = Connection::open(address, HANG).await?;
            let mut replies = Vec::new();
            for words in questions {
                replies.push(connection.call(words).await?);
            }
            std::io::Result::Ok(replies)
        };
        let bounded = async { tokio::time::timeout(HANG, asked).await };
        runtime.block_on(bounded).unwrap_or_else(|_| panic!("{address} does not answer {questions:?}")).ok()
    }

    pub fn call(&mut self, words: &[&str]) -> Reply {
        let asked = async { tokio::time::timeout(self.patience, self.connection.call(words)).await };
        match self.runtime.block_on(asked) {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => panic!("{} broke off at {}: {error}", self.address, brief(words)),
            Err(_) => panic!("{} does not answer {}", self.address, brief(words)),
        }
    }

    /// Sends requests in a pipeline and returns the replies.
    pub fn call_all(&mut self, requests: &[Vec<String>]) -> Vec<Reply> {
        let asked = async {
            requests.iter().for_each(|words| self.connection.queue(words));
            self.connection.flush().await?;
            let mut replies = Vec::new();
            for _ in requests {
                replies.push(tokio::time::timeout(HANG, self.connection.reply()).await??);
            }
            std::io::Result::Ok(replies)
        };
        self.runtime.block_on(asked).unwrap_or_else(|error| panic!("{}: {error}", self.address))
    }

    /// Returns the text of a string reply. `None` for nil.
    pub fn text(&mut self, words: &[&str]) -> Option<String> {
        match self.call(words) {
            Reply::Nil | Reply::NilArray => None,
            reply => match client::connection::text(&reply) {
                Some(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
                None => panic!("{words:?}: {reply:?} is no text"),
            },
        }
    }

    /// Returns the text like [`text`](Self::text), and `None` also for an error.
    pub fn text_if_any(&mut self, words: &[&str]) -> Option<String> {
        match self.call(words) {
            Reply::Error(_) => None,
            reply => client::connection::text(&reply).map(|text| String::from_utf8_lossy(&text).into_owned()),
        }
    }

    pub fn int(&mut self, words: &[&str]) -> i64 {
        match self.call(words) {
            Reply::Int(n) => n,
            reply => panic!("{words:?}: {reply:?} is no number"),
        }
    }

    /// Returns the text of an error reply.
    pub fn error(&mut self, words: &[&str]) -> String {
        match self.call(words) {
            Reply::Error(text) => text.to_string(),
            reply => panic!("{words:?}: {reply:?} is no error"),
        }
    }

    pub fn ok(&mut self, words: &[&str]) {
        assert_eq!(self.text(words).as_deref(), Some("OK"), "{words:?}");
    }
}
