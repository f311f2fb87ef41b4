//! The server that is copied from: its databases, walks over its keys, and values.

use std::collections::BTreeMap;

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
        let info = call(&mut connection, &["INFO", "server"]).await?;
        let info = text(&info).unwrap_or_default();
        let info = String::from_utf8_lossy(&info).into_owned();
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default()
        };
        let identity = field("run_id").trim().to_owned();
        let is_steelyard = !field("steelyard_version").is_empty();
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

    /// Returns the databases that have keys, with their numbers of keys.
    pub async fn databases(&mut self) -> anyhow::Result<BTreeMap<u64, u64>> {
        let mut found = BTreeMap::new();
        let numbers: Vec<u64> = match self.url.database {
            Some(database) => vec![database.into()],
            None if self.is_steelyard => (0..DATABASES).collect(),
            None => {
                let info = call(&mut self.connection, &["INFO", "keyspace"]).await?;
                let info = text(&info).context("INFO returns no text")?;
                let info = String::from_utf8_lossy(&info).into_owned();
                let database = |line: &str| line.strip_prefix("db")?.split_once(':')?.0.parse().ok();
                info.lines().filter_map(database).collect()
            }
        };
        for database in numbers {
            match self.select(database).await {
                Ok(()) => {}
                // In cluster mode there is one database.
                Err(_) if self.is_steelyard && database > 0 && self.url.database.is_none() => break,
                Err(error) => return Err(error),
            }
            let keys = number(&mut self.connection, &["DBSIZE"]).await?;
            if keys > 0 {
                found.insert(database, keys.unsigned_abs());
            }
        }
        Ok(found)
    }

    pub async fn select(&mut self, database: u64) -> anyhow::Result<()> {
        if self.database != database {
            call(&mut self.connection, &["SELECT".to_owned(), database.to_string()]).await?;
            self.database = database;
        }
        Ok(())
    }

    /// Takes a step of a walk over a database. Returns the next cursor, which is 0 at the end.
    pub async fn scan(&mut self, database: u64, cursor: u64) -> anyhow::Result<(u64, Vec<Bytes>)> {
        self.select(database).await?;
        let words = ["SCAN".to_owned(), cursor.to_string(), "COUNT".to_owned(), SCAN_COUNT.to_string()];
        step_of(call(&mut self.connection, &words).await?)
    }

    /// Returns the values of keys in their order. A value of more than `large` bytes is not read.
    pub async fn values(&mut self, database: u64, keys: &[Bytes], large: u64) -> anyhow::Result<Vec<Value>> {
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
        if self.has_expire_times {
            let at = number(&mut self.connection, &[&b"PEXPIRETIME"[..], key]).await?;
            return Ok(u64::try_from(at).ok());
        }
        let now_ms = time_ms(&self.connection.call(&["TIME"]).await?);
        let left = number(&mut self.connection, &[&b"PTTL"[..], key]).await?;
        Ok(u64::try_from(left).ok().map(|left| now_ms.saturating_add(left)))
    }
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
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
