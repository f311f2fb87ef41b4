//! The table of keys and values in RAM.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use super::batch;

#[derive(Default)]
pub(super) struct Table {
    rows: HashMap<Box<[u8]>, Box<[u8]>, Xxh3DefaultBuilder>,
}

impl Table {
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.rows.get(key).map(|value| &value[..])
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Applies a committed batch.
    pub(super) fn apply(&mut self, batch: &Arc<Vec<u8>>) {
        for (key, value) in batch::entries(batch) {
            match self.rows.get_mut(key) {
                Some(old) if old.len() == value.len() => old.copy_from_slice(value),
                Some(old) => *old = value.into(),
                None => drop(self.rows.insert(key.into(), value.into())),
            }
        }
    }
}
