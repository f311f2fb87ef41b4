//! The servers of a transfer: their URLs, and connections to them.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{bail, ensure, Context};
use client::connection::Connection;
use resp::Reply;

/// Maximum time for a connection to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
const DEFAULT_PORT: u16 = 6379;

/// `redis://[user:password@]host:port[/database]`, or `rediss://` with TLS.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    tls: bool,
    user: Option<String>,
    password: Option<String>,
    host: String,
    port: u16,
    pub database: Option<u16>,
}

/// Without the password.
impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)?;
        self.database.map_or(Ok(()), |database| write!(f, "/{database}"))
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ServerUrl {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<ServerUrl> {
        let (scheme, rest) = text.split_once("://").context("a URL begins with redis:// or rediss://")?;
        let tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => bail!("a URL begins with redis:// or rediss://"),
        };
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let (place, database) = match place.split_once('/') {
            Some((place, "")) => (place, None),
            Some((place, number)) => (place, Some(number.parse().context("the database is not a number")?)),
            None => (place, None),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => (None, None),
            Some((user, password)) => {
                (Some(decoded(user)?).filter(|user| !user.is_empty()), Some(decoded(password)?))
            }
        };
        // A host in brackets is an address of IPv6.
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').context("a port follows the address")?)),
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        ensure!(!host.is_empty(), "the URL names no host");
        let port = port.map_or(Ok(DEFAULT_PORT), str::parse).context("the port is not a number")?;
        Ok(ServerUrl { tls, user, password, host: host.to_owned(), port, database })
    }
}

/// Decodes `%20` and the like.
fn decoded(text: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap_or(b' '), rest.next().unwrap_or(b' ')];
                let digits = std::str::from_utf8(&digits).unwrap_or_default();
                u8::from_str_radix(digits, 16).context("two hexadecimal digits follow a %")?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).context("a name or password is not UTF-8")
}

impl ServerUrl {
    /// Connects and logs in.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let connecting = async {
            let mut addresses = tokio::net::lookup_host((self.host.as_str(), self.port)).await?;
            let address = addresses.next().context("the host has no address")?;
            let mut connection = match self.tls {
                false => Connection::open_plain(address, CONNECT_PATIENCE).await?,
                true => {
                    let tls = client::tls::of_process().map_err(anyhow::Error::msg)?;
                    ensure!(tls.is_some(), "rediss:// needs --tls or {}", client::tls::DIRECTORY);
                    Connection::open(address, CONNECT_PATIENCE).await?
                }
            };
            let login: Vec<&str> = match (&self.user, &self.password) {
                (Some(user), Some(password)) => vec!["AUTH", user, password],
                (None, Some(password)) => vec!["AUTH", password],
                _ => Vec::new(),
            };
            if !login.is_empty() {
                expect_ok(connection.call(&login).await?)?;
            }
            match connection.call(&["PING"]).await? {
                Reply::Error(text) => bail!("{text}"),
                _ => Ok(connection),
            }
        };
        connecting.await.with_context(|| format!("{self}"))
    }

    /// Names the server in the error of a connection that broke. Other errors stay as they are.
    pub fn name_broken(&self, error: anyhow::Error) -> anyhow::Error {
        let Some(broken) = error.downcast_ref::<io::Error>() else { return error };
        let (kind, text, url) = (broken.kind(), broken.to_string(), self.to_string());
        if text.starts_with(&url) {
            return error;
        }
        let why = match kind {
            io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
            _ => format!("the connection broke: {text}"),
        };
        io::Error::new(kind, format!("{url}: {why}")).into()
    }
}

pub fn expect_ok(reply: Reply) -> anyhow::Result<()> {
    match reply {
        Reply::Error(text) => bail!("{text}"),
        _ => Ok(()),
    }
}

/// Sends a command, and returns an error for an error reply.
pub async fn call<A: AsRef<[u8]>>(connection: &mut Connection, words: &[A]) -> anyhow::Result<Reply> {
    match connection.call(words).await? {
        Reply::Error(text) => {
            bail!("{}: {text}", String::from_utf8_lossy(words.first().map_or(&b""[..], |name| name.as_ref())))
        }
        reply => Ok(reply),
    }
}

/// Selects a database.
pub async fn select(connection: &mut Connection, database: u64) -> anyhow::Result<()> {
    call(connection, &["SELECT".to_owned(), database.to_string()]).await.map(drop)
}

/// Selects a database of the target, and waits for the answer: writes that were sent with a refused
/// `SELECT` would change the database that was selected before. No reply may be due.
///
/// # Errors
/// If the target refuses the database.
pub async fn select_at_target(
    connection: &mut Connection,
    url: &ServerUrl,
    database: u64,
) -> anyhow::Result<()> {
    let words = ["SELECT".to_owned(), database.to_string()];
    match connection.call(&words).await.with_context(|| url.to_string())? {
        Reply::Error(text) => bail!(
            "{url}: the target refuses database {database} ({text}), where the keys of the source's database \
             {database} go. Name a target that has this database, which no server in cluster mode has, or copy \
             single databases: --from redis://host:port/0"
        ),
        _ => Ok(()),
    }
}

/// Sends a command whose reply is an integer.
pub async fn number<A: AsRef<[u8]>>(connection: &mut Connection, words: &[A]) -> anyhow::Result<i64> {
    match call(connection, words).await? {
        Reply::Int(number) => Ok(number),
        other => bail!("not a number: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ServerUrl {
        text.parse().unwrap()
    }

    #[test]
    fn the_error_of_a_broken_connection_names_its_server_once() {
        let url = parsed("redis://h:7");
        let named = |kind: io::ErrorKind| {
            let error = url.name_broken(io::Error::from(kind).into());
            assert!(error.is::<io::Error>());
            url.name_broken(error).to_string()
        };
        assert_eq!(named(io::ErrorKind::UnexpectedEof), "redis://h:7: the server closed the connection");
        assert_eq!(named(io::ErrorKind::BrokenPipe), "redis://h:7: the connection broke: broken pipe");
        assert_eq!(url.name_broken(anyhow::anyhow!("SCAN: ERR why")).to_string(), "SCAN: ERR why");
    }

    #[test]
    fn urls_have_logins_databases_and_addresses() {
        let url = parsed("redis://me:p%40ss:w@host.example:6380/3");
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p@ss:w")));
        assert_eq!((url.host.as_str(), url.port, url.database), ("host.example", 6380, Some(3)));
        assert_eq!(url.to_string(), "redis://host.example:6380/3", "the password is not shown");
        let url = parsed("rediss://:secret@[::1]:7000");
        assert_eq!((url.user, url.password.as_deref(), url.host.as_str()), (None, Some("secret"), "::1"));
        assert_eq!(parsed("redis://localhost").port, DEFAULT_PORT);
        for wrong in ["localhost:1", "http://x", "redis://", "redis://h:x", "redis://h:1/x", "redis://%g@h"] {
            assert!(wrong.parse::<ServerUrl>().is_err(), "{wrong}");
        }
    }
}
