//! The server that is copied from: its databases, walks over its keys, and values.

use std::collections::BTreeMap;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{bail, Context};
use bytes::Bytes;
use client::connection::{text, Connection};
use resp::Reply;

use super::server::{call, number, ServerUrl};

/// Estimated bytes of the values that are requested at once.
const PIPELINE_BYTES: u64 = 8 << 20;
/// Number of keys that one step of a walk asks for.
const SCAN_COUNT: usize = 500;
/// Number of databases of a Steelyard, whose `INFO` tells of one store only.
const DATABASES: u64 = 16;

/// Maximum number of keys that are listed to find out how many have expired.
const LISTED_MAX: u64 = 1_000_000;

/// A value that was asked for.
pub enum Value {
    Payload {
        payload: Bytes,
        expire_at_ms: Option<u64>,
    },
    /// The key has gone.
    Gone,
    /// The value is too large for one payload.
    Large,
    /// The server refuses it.
    Refused(String),
}

pub struct Source {
    pub url: ServerUrl,
    pub connection: Connection,
    database: u64,
    /// True if the server tells instants of expiry (Redis 7.0).
    has_expire_times: bool,
    has_memory_usage: bool,
    pub is_steelyard: bool,
    /// Identifies the process in which cursors are valid.
    pub identity: String,
}

impl Source {
    pub async fn connect(url: &ServerUrl) -> anyhow::Result<Source> {
        let mut connection = url.connect().await?;
        let info = info(&mut connection, "server").await?;
        let identity = field(&info, "run_id").unwrap_or_default().to_owned();
        let is_steelyard = field(&info, "steelyard_version").is_some();
        let has_expire_times = !connection.call(&["PEXPIRETIME", ""]).await?.is_error();
        Ok(Source {
            url: url.clone(),
            connection,
            database: 0,
            has_expire_times,
            has_memory_usage: true,
            is_steelyard,
            identity,
        })
    }

    /// Returns true if the server may refuse the database because there is only one.
    fn may_lack(&self, database: u64) -> bool {
        self.is_steelyard && database > 0 && self.url.database.is_none()
    }

    /// Names this server in the error of a connection that broke.
    fn named<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        result.map_err(|error| self.url.name_broken(error))
    }

    /// Sends a command, and returns an error for an error reply.
    async fn call<A: AsRef<[u8]>>(&mut self, words: &[A]) -> anyhow::Result<Reply> {
        let reply = call(&mut self.connection, words).await;
        self.named(reply)
    }

    /// Returns a section of `INFO`.
    pub async fn info(&mut self, section: &str) -> anyhow::Result<String> {
        let info = info(&mut self.connection, section).await;
        self.named(info)
    }

    /// Returns the number of keys of a database, as the server counts them.
    pub async fn size(&mut self, database: u64) -> anyhow::Result<u64> {
        self.select(database).await?;
        let size = number(&mut self.connection, &["DBSIZE"]).await;
        Ok(self.named(size)?.unsigned_abs())
    }

    /// Returns the databases that have keys, with their numbers of keys.
    pub async fn databases(&mut self) -> anyhow::Result<BTreeMap<u64, u64>> {
        let mut found = BTreeMap::new();
        let numbers: Vec<u64> = match self.url.database {
            Some(database) => vec![database.into()],
            None if self.is_steelyard => (0..DATABASES).collect(),
            None => {
                let info = self.info("keyspace").await?;
                let database = |line: &str| line.strip_prefix("db")?.split_once(':')?.0.parse().ok();
                info.lines().filter_map(database).collect()
            }
        };
        for database in numbers {
            match self.select(database).await {
                Ok(()) => {}
                // In cluster mode there is one database.
                Err(error) if !self.may_lack(database) || error.is::<io::Error>() => return Err(error),
                Err(_) => break,
            }
            let keys = self.size(database).await?;
            if keys > 0 {
                found.insert(database, keys);
            }
        }
        Ok(found)
    }

    pub async fn select(&mut self, database: u64) -> anyhow::Result<()> {
        if self.database != database {
            self.call(&["SELECT".to_owned(), database.to_string()]).await?;
            self.database = database;
        }
        Ok(())
    }

    /// Takes a step of a walk over a database. Returns the next cursor, which is 0 at the end.
    pub async fn scan(&mut self, database: u64, cursor: u64) -> anyhow::Result<(u64, Vec<Bytes>)> {
        self.select(database).await?;
        let words = ["SCAN".to_owned(), cursor.to_string(), "COUNT".to_owned(), SCAN_COUNT.to_string()];
        step_of(self.call(&words).await?)
    }

    /// Returns up to `count` keys of a database, at random. Keys can be there twice.
    ///
    /// A paused Redis searches without an end for a random key if all keys have expired. So where
    /// each key has an expiry time, the first keys of a walk are returned.
    pub async fn sample(&mut self, database: u64, count: usize) -> anyhow::Result<Vec<Bytes>> {
        self.select(database).await?;
        if !self.is_steelyard && is_volatile(&self.info("keyspace").await?, database) {
            return self.first_keys(database, count).await;
        }
        let keys = self.random_keys(count).await;
        self.named(keys)
    }

    async fn first_keys(&mut self, database: u64, count: usize) -> anyhow::Result<Vec<Bytes>> {
        let (mut keys, mut cursor) = (Vec::new(), 0);
        loop {
            let (next, found) = self.scan(database, cursor).await?;
            keys.extend(found);
            cursor = next;
            if cursor == 0 || keys.len() >= count {
                keys.truncate(count);
                return Ok(keys);
            }
        }
    }

    async fn random_keys(&mut self, count: usize) -> anyhow::Result<Vec<Bytes>> {
        for _ in 0..count {
            self.connection.queue(&["RANDOMKEY"]);
        }
        self.connection.flush().await?;
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            match self.connection.reply().await? {
                Reply::Error(text) => bail!("RANDOMKEY: {text}"),
                reply => keys.extend(text(&reply)),
            }
        }
        Ok(keys)
    }

    /// Returns the least number of keys of a database that have expired, although the server still
    /// counts them. Returns `None` if it is not known, because the data changed meanwhile, the keys
    /// are too many to be listed, or the server does not tell its changes.
    pub async fn expired_keys(&mut self, database: u64) -> anyhow::Result<Option<u64>> {
        let (before, size) = (self.changes().await?, self.size(database).await?);
        if before.is_none() || size > LISTED_MAX {
            return Ok(None);
        }
        // A walk lists no key that has expired.
        let listed = self.listed(database).await?;
        let is_unchanged = self.changes().await? == before && self.size(database).await? == size;
        Ok(is_unchanged.then(|| size.saturating_sub(listed)))
    }

    /// Returns the number of keys that a walk over a database lists.
    async fn listed(&mut self, database: u64) -> anyhow::Result<u64> {
        let (mut listed, mut cursor) = (0, 0);
        loop {
            let (next, keys) = self.scan(database, cursor).await?;
            listed += keys.len() as u64;
            if next == 0 {
                return Ok(listed);
            }
            cursor = next;
        }
    }

    /// Returns numbers that change with each write, if the server tells them.
    async fn changes(&mut self) -> anyhow::Result<Option<[String; 2]>> {
        let info = self.info("persistence").await?;
        let [changes, since] = ["rdb_changes_since_last_save", "rdb_last_save_time"];
        let changes = field(&info, changes).zip(field(&info, since));
        Ok(changes.map(|(changes, since)| [changes.to_owned(), since.to_owned()]))
    }

    /// Returns the values of keys in their order. A value of more than `large` bytes is not read.
    pub async fn values(&mut self, database: u64, keys: &[Bytes], large: u64) -> anyhow::Result<Vec<Value>> {
        let values = self.read_values(database, keys, large).await;
        self.named(values)
    }

    async fn read_values(&mut self, database: u64, keys: &[Bytes], large: u64) -> anyhow::Result<Vec<Value>> {
        self.select(database).await?;
        let sizes = self.sizes(keys).await?;
        let mut values = Vec::with_capacity(keys.len());
        let mut from = 0;
        while from < keys.len() {
            let (mut end, mut bytes) = (from, 0);
            while end < keys.len() && (end == from || bytes < PIPELINE_BYTES) {
                bytes += sizes[end].filter(|size| *size <= large).unwrap_or(0);
                end += 1;
            }
            self.values_at_once(&keys[from..end], &sizes[from..end], large, &mut values).await?;
            from = end;
        }
        Ok(values)
    }

    /// Returns estimates of the bytes of values; `None` if a key has gone.
    async fn sizes(&mut self, keys: &[Bytes]) -> anyhow::Result<Vec<Option<u64>>> {
        if !self.has_memory_usage {
            return Ok(vec![Some(0); keys.len()]);
        }
        for key in keys {
            self.connection.queue(&[&b"MEMORY"[..], b"USAGE", key]);
        }
        self.connection.flush().await?;
        let mut sizes = Vec::with_capacity(keys.len());
        for _ in keys {
            sizes.push(match self.connection.reply().await? {
                Reply::Int(bytes) => Some(bytes.unsigned_abs()),
                Reply::Nil => None,
                _ => {
                    self.has_memory_usage = false;
                    Some(0)
                }
            });
        }
        Ok(sizes)
    }

    async fn values_at_once(
        &mut self,
        keys: &[Bytes],
        sizes: &[Option<u64>],
        large: u64,
        values: &mut Vec<Value>,
    ) -> anyhow::Result<()> {
        let is_asked = |size: &Option<u64>| size.is_some_and(|size| size <= large);
        self.connection.queue(&["TIME"]);
        for (key, _) in keys.iter().zip(sizes).filter(|(_, size)| is_asked(size)) {
            let about_time = if self.has_expire_times { &b"PEXPIRETIME"[..] } else { b"PTTL" };
            self.connection.queue(&[about_time, key]);
            self.connection.queue(&[&b"DUMP"[..], key]);
        }
        self.connection.flush().await?;
        let now_ms = time_ms(&self.connection.reply().await?);
        for size in sizes {
            if !is_asked(size) {
                values.push(if size.is_some() { Value::Large } else { Value::Gone });
                continue;
            }
            let time = self.connection.reply().await?;
            let payload = self.connection.reply().await?;
            values.push(match (time, payload) {
                (Reply::Int(-2), _) | (_, Reply::Nil) => Value::Gone,
                // The estimate was too low.
                (Reply::Int(_), Reply::Bulk(payload)) if payload.len() as u64 > large => Value::Large,
                (Reply::Int(time), Reply::Bulk(payload)) => {
                    let since = if self.has_expire_times { 0 } else { now_ms };
                    let expire_at_ms = u64::try_from(time).ok().map(|time| time.saturating_add(since));
                    Value::Payload { payload, expire_at_ms }
                }
                (_, Reply::Error(text)) if text.contains("too large") => Value::Large,
                (Reply::Error(text), _) | (_, Reply::Error(text)) => Value::Refused(text.into_owned()),
                (time, _) => bail!("{}: an answer to DUMP that is none: {time:?}", self.url),
            });
        }
        Ok(())
    }

    /// Returns the instant at which a key expires.
    pub async fn expire_at_ms(&mut self, key: &Bytes) -> anyhow::Result<Option<u64>> {
        let at = self.read_expire_at_ms(key).await;
        self.named(at)
    }

    async fn read_expire_at_ms(&mut self, key: &Bytes) -> anyhow::Result<Option<u64>> {
        if self.has_expire_times {
            let at = number(&mut self.connection, &[&b"PEXPIRETIME"[..], key]).await?;
            return Ok(u64::try_from(at).ok());
        }
        let now_ms = time_ms(&self.connection.call(&["TIME"]).await?);
        let left = number(&mut self.connection, &[&b"PTTL"[..], key]).await?;
        Ok(u64::try_from(left).ok().map(|left| now_ms.saturating_add(left)))
    }
}

/// Returns a section of a server's `INFO`.
async fn info(connection: &mut Connection, section: &str) -> anyhow::Result<String> {
    let info = call(connection, &["INFO", section]).await?;
    let info = text(&info).context("INFO returns no text")?;
    Ok(String::from_utf8_lossy(&info).into_owned())
}

/// Returns a field of `INFO` that is not empty.
pub fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim).filter(|value| !value.is_empty())
}

/// Returns true if each key of a database has an expiry time, according to `INFO keyspace`.
fn is_volatile(info: &str, database: u64) -> bool {
    let numbers = field(info, &format!("db{database}")).unwrap_or_default();
    let number = |name: &str| numbers.split(',').find_map(|part| part.strip_prefix(name));
    number("keys=").is_some_and(|keys| number("expires=") == Some(keys))
}

/// Returns the cursor and the items of a step of a walk.
pub fn step_of(reply: Reply) -> anyhow::Result<(u64, Vec<Bytes>)> {
    if let Reply::Array(parts) = reply {
        if let Ok([cursor, Reply::Array(items)]) = <[Reply; 2]>::try_from(parts) {
            let cursor = text(&cursor).and_then(|cursor| std::str::from_utf8(&cursor).ok()?.parse().ok());
            let items = items.iter().map(text).collect::<Option<Vec<Bytes>>>();
            if let (Some(cursor), Some(items)) = (cursor, items) {
                return Ok((cursor, items));
            }
        }
    }
    bail!("not an answer to a walk")
}

/// Returns the server's time, or this machine's if it does not tell it.
pub fn time_ms(reply: &Reply) -> u64 {
    let part = |reply: &Reply| std::str::from_utf8(&text(reply)?).ok()?.parse::<u64>().ok();
    if let Reply::Array(parts) = reply {
        if let [seconds, micros] = &parts[..] {
            if let (Some(seconds), Some(micros)) = (part(seconds), part(micros)) {
                return seconds.saturating_mul(1000).saturating_add(micros / 1000);
            }
        }
    }
    now_ms()
}

/// Returns this machine's Unix time in milliseconds.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_volatile_if_each_of_its_keys_has_an_expiry_time() {
        let info = "# Keyspace\r\ndb0:keys=2,expires=2,avg_ttl=7\r\ndb3:keys=12,expires=2,avg_ttl=0\r\n";
        assert_eq!([0, 3, 30].map(|database| is_volatile(info, database)), [true, false, false]);
        assert_eq!((field(info, "db1"), field("a:\r\nb: c\r\n", "b")), (None, Some("c")));
        assert_eq!(field("a:\r\n", "a"), None);
    }
}
