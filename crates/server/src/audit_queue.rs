//! Records of changes that this store made by itself, until they are in the cluster's audit log.
//!
//! Such a change is made first and recorded afterwards, with its outcome: a store must be
//! configurable and recoverable just when the meta region has no quorum. Records that cannot be
//! delivered are kept in the data directory (`DIR/AUDIT`) and are delivered later, also after a
//! restart. A change by `CONFIG SET` that a crash forgets goes together with its record.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster::admin::HIDDEN;
use cluster::{AuditOutcome, AuditedChange};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::datadir;

const FILE: &str = datadir::AUDIT;
/// Maximum number of records that wait.
const WAITING_MAX: usize = 512;
/// Time for which a change waits until its record is delivered, and then until it is kept.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// A change that a store made by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalRecord {
    pub change: AuditedChange,
    pub outcome: AuditOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl LocalRecord {
    /// Creates a record. The reason is left out if it may repeat an argument that is left out.
    pub fn new(change: AuditedChange, outcome: AuditOutcome, reason: Option<String>) -> LocalRecord {
        let hides = change.arguments.iter().any(|argument| argument.contains(HIDDEN));
        let reason = reason.filter(|_| !hides).map(cluster::clipped);
        LocalRecord { change, outcome, reason }
    }
}

pub struct AuditQueue {
    path: PathBuf,
    waiting: Mutex<VecDeque<LocalRecord>>,
    /// Locked while the file changes. True if there is one.
    has_file: Mutex<bool>,
    news: Notify,
    delivered: Notify,
}

impl AuditQueue {
    /// Creates the queue with the records that an earlier process kept in the directory.
    pub fn load(dir: &Path) -> AuditQueue {
        let path = dir.join(FILE);
        let kept = atrest::read(&path);
        let waiting: VecDeque<LocalRecord> = match &kept {
            Ok(text) => serde_json::from_slice(text).unwrap_or_else(|error| {
                tracing::error!(%error, file = %path.display(), "records of the audit log cannot be read and are lost");
                VecDeque::new()
            }),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::error!(%error, file = %path.display(), "records of the audit log cannot be read");
                }
                VecDeque::new()
            }
        };
        AuditQueue {
            path,
            waiting: Mutex::new(waiting),
            has_file: Mutex::new(kept.is_ok()),
            news: Notify::new(),
            delivered: Notify::new(),
        }
    }

    /// Adds a record that is to be delivered. If too many wait, the oldest is dropped.
    pub fn add(&self, record: LocalRecord) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
            tracing::error!(
                "the cluster takes no records of changes: the oldest of {WAITING_MAX} that wait is in this log only"
            );
        }
        waiting.push_back(record);
        drop(waiting);
        self.news.notify_one();
    }

    /// Returns the oldest record that waits.
    pub async fn next(&self) -> LocalRecord {
        loop {
            let oldest = self.waiting.lock().front().cloned();
            match oldest {
                Some(record) => return record,
                None => self.news.notified().await,
            }
        }
    }

    /// Removes a record that was delivered. Returns true if it was the last one, and the file is
    /// still there. Until then the file may hold delivered records: they are recorded once.
    pub fn remove(&self, number: u64) -> bool {
        let is_empty = {
            let mut waiting = self.waiting.lock();
            waiting.retain(|record| record.change.number != number);
            waiting.is_empty()
        };
        self.delivered.notify_waiters();
        is_empty && *self.has_file.lock()
    }

    /// Waits until a record is delivered.
    pub async fn await_delivery(&self, number: u64) {
        loop {
            let mut delivered = std::pin::pin!(self.delivered.notified());
            delivered.as_mut().enable();
            if !self.waiting.lock().iter().any(|record| record.change.number == number) {
                return;
            }
            delivered.await;
        }
    }

    /// Writes the records that wait to the file, durably, or removes the file if none wait.
    pub fn keep(&self) {
        let mut has_file = self.has_file.lock();
        let waiting = self.waiting.lock().clone();
        let kept = match waiting.is_empty() {
            // If the removal is lost, the records are delivered again and recorded once.
            true => fs::remove_file(&self.path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
            false => {
                let text = serde_json::to_vec(&waiting).expect("plain data");
                atrest::write_with_mode(&self.path, text, 0o600)
            }
        };
        match kept {
            Ok(()) => *has_file = !waiting.is_empty(),
            Err(error) => {
                tracing::error!(%error, "records of the audit log cannot be kept over a restart");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn record(number: u64) -> LocalRecord {
        let change = AuditedChange { number, command: "config set".into(), ..AuditedChange::default() };
        LocalRecord::new(change, AuditOutcome::Done, None)
    }

    #[tokio::test]
    async fn records_that_wait_survive_a_restart_and_the_file_goes_with_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let queue = AuditQueue::load(dir.path());
        queue.keep();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        (1..=3).for_each(|number| queue.add(record(number)));
        queue.keep();
        let path = dir.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let queue = AuditQueue::load(dir.path());
        assert_eq!(queue.next().await, record(1));
        for number in 1..=3 {
            assert_eq!(queue.remove(number), number == 3, "the file goes with the last");
            queue.await_delivery(number).await;
        }
        queue.keep();
        assert!(!path.exists() && !queue.remove(3));
    }

    #[test]
    fn too_many_records_drop_the_oldest_and_a_damaged_file_is_not_fatal() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "[{").unwrap();
        let queue = AuditQueue::load(dir.path());
        (0..WAITING_MAX as u64 + 2).for_each(|number| queue.add(record(number)));
        let waiting = queue.waiting.lock();
        assert_eq!((waiting.len(), waiting[0].change.number), (WAITING_MAX, 2));
    }
}
