//! Prefetches the rows that commands will read.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use command::prefetch::Wanted;
use rocks::Keyspace;

use crate::readers::{Found, Read, Readers};

/// Maximum number of rows that are prefetched together, however many keys a single command names.
const ROWS_MAX: usize = 1 << 16;

/// The rows that commands will read and that RAM does not hold.
pub struct Missing<'a> {
    keyspace: &'a Keyspace,
    rows: Vec<Bytes>,
    known: HashSet<Bytes>,
    /// Fields and roots whose row names depend on a meta row that must be read first.
    parts: Vec<(Bytes, Wanted)>,
}

impl<'a> Missing<'a> {
    pub fn new(keyspace: &'a Keyspace) -> Missing<'a> {
        Missing { keyspace, rows: Vec::new(), known: HashSet::new(), parts: Vec::new() }
    }

    /// Returns the number of rows so far, without the fields and roots whose row names are unknown.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if reading the rows together is faster than reading them one by one.
    pub fn are_several(&self) -> bool {
        self.rows.len() > 1 || self.parts.iter().any(|(_, wanted)| wanted.parts() > 1)
    }

    pub fn add(&mut self, wanted: Wanted) {
        let meta = wanted.meta_row();
        match self.keyspace.peek(&meta) {
            Some(Some(value)) if wanted.has_parts() => {
                for row in wanted.part_rows(&value) {
                    self.add_row(row);
                }
            }
            Some(_) => {}
            None => {
                self.add_missing(meta.clone());
                if wanted.has_parts() {
                    self.parts.push((meta, wanted));
                }
            }
        }
    }

    fn add_row(&mut self, row: Bytes) {
        if self.keyspace.peek(&row).is_none() {
            self.add_missing(row);
        }
    }

    /// Adds a row that was not in RAM.
    fn add_missing(&mut self, row: Bytes) {
        if self.rows.len() < ROWS_MAX && self.known.insert(row.clone()) {
            self.rows.push(row);
        }
    }

    /// Reads the rows and then the fields and roots, up to about `bytes_max` bytes of each.
    /// `Read::taken` counts only the rows.
    pub fn read(self, readers: &Readers, bytes_max: usize) -> Read {
        let mut read = readers.read(self.rows, bytes_max);
        if self.parts.is_empty() {
            return read;
        }
        let metas: HashMap<&Bytes, &Found> = read.rows.iter().map(|(row, found)| (row, found)).collect();
        let mut fields = Missing::new(self.keyspace);
        for (meta, wanted) in &self.parts {
            if let Some(Some(value)) = metas.get(meta) {
                for row in wanted.part_rows(value) {
                    fields.add_row(row);
                }
            }
        }
        let more = readers.read(fields.rows, bytes_max);
        read.rows.extend(more.rows);
        read.slow += more.slow;
        read
    }
}
