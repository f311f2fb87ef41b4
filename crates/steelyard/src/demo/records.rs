//! The records to load: the machine's Debian package index with one hash per package, or texts if
//! there is no index.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;
use bytes::Bytes;

/// A key and its fields, in the order of the source.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub key: Bytes,
    pub fields: Vec<(Bytes, Bytes)>,
}

impl Record {
    pub fn bytes(&self) -> usize {
        self.key.len() + self.fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// A description of a source of records, and the function that reads it.
type Source = (&'static str, fn() -> Vec<Record>);

/// Returns the records, sorted by key and without duplicates, and the description of their source.
pub fn find() -> anyhow::Result<(Vec<Record>, String)> {
    let sources: [Source; 4] = [
        ("the Debian package index (apt-cache dumpavail)", dumpavail),
        ("the Debian package index (/var/lib/apt/lists)", package_lists),
        ("the installed packages (/var/lib/dpkg/status)", dpkg_status),
        ("the texts in /usr/share", texts),
    ];
    for (name, read) in sources {
        let unique: BTreeMap<Bytes, Record> = read().into_iter().map(|r| (r.key.clone(), r)).collect();
        // A container without its package index has fewer records.
        if unique.len() >= 100 {
            return Ok((unique.into_values().collect(), name.to_owned()));
        }
    }
    bail!("no package index and no texts to load were found on this machine")
}

fn dumpavail() -> Vec<Record> {
    let output = Command::new("apt-cache").arg("dumpavail").output();
    output.map(|output| stanzas(&output.stdout)).unwrap_or_default()
}

fn package_lists() -> Vec<Record> {
    let Ok(entries) = std::fs::read_dir("/var/lib/apt/lists") else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let lists = paths.filter(|path| path.to_string_lossy().ends_with("_Packages"));
    lists.filter_map(|path| std::fs::read(path).ok()).flat_map(|bytes| stanzas(&bytes)).collect()
}

fn dpkg_status() -> Vec<Record> {
    std::fs::read("/var/lib/dpkg/status").map(|bytes| stanzas(&bytes)).unwrap_or_default()
}

/// Parses the Debian control format: `Field: value`, continued on lines that begin with a blank. An
/// empty line ends a record.
fn stanzas(bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for line in bytes.split(|b| *b == b'\n').chain(std::iter::once(&b""[..])) {
        match (line.first(), fields.last_mut()) {
            (None, _) => records.extend(record(std::mem::take(&mut fields))),
            (Some(b' ' | b'\t'), Some((_, value))) => {
                value.push(b'\n');
                value.extend_from_slice(line);
            }
            _ => {
                if let Some(colon) = line.iter().position(|b| *b == b':') {
                    fields.push((line[..colon].to_vec(), line[colon + 1..].trim_ascii().to_vec()));
                }
            }
        }
    }
    records
}

fn record(fields: Vec<(Vec<u8>, Vec<u8>)>) -> Option<Record> {
    let (_, name) = fields.iter().find(|(field, _)| field == b"Package")?;
    let key = [b"pkg:", name.as_slice()].concat().into();
    // A hash has each field once. The last value is used, as with HSET.
    let mut unique: Vec<(Bytes, Bytes)> = Vec::with_capacity(fields.len());
    for (field, value) in fields {
        unique.retain(|(known, _)| *known != field);
        unique.push((field.into(), value.into()));
    }
    Some(Record { key, fields: unique })
}

/// Cuts text files at empty lines into records of about 1 KB.
fn texts() -> Vec<Record> {
    const RECORDS: usize = 60_000;
    let mut records = Vec::new();
    let mut waiting: Vec<PathBuf> = vec!["/usr/share/doc".into(), "/usr/share/common-licenses".into()];
    while let Some(dir) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(kind) if kind.is_file() && records.len() < RECORDS => records.extend(paragraphs(&path)),
                _ => {}
            }
        }
    }
    records
}

fn paragraphs(path: &Path) -> Vec<Record> {
    let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
    let mut parts = vec![String::new()];
    for line in text.lines() {
        let last = parts.last_mut().expect("never empty");
        if line.trim().is_empty() && last.len() > 900 {
            parts.push(String::new());
        } else {
            *last += line;
            last.push('\n');
        }
    }
    let name = path.to_string_lossy().into_owned();
    let record = |(number, text): (usize, String)| Record {
        key: format!("text:{name}:{number}").into(),
        fields: vec![("File".into(), name.clone().into()), ("Text".into(), text.into())],
    };
    parts.into_iter().enumerate().filter(|(_, text)| !text.trim().is_empty()).map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stanza_becomes_a_hash_with_its_continued_lines() {
        let text =
            b"Package: a\nVersion: 1:2\nDescription: short\n long\n .\n more\n\nPackage: b\nTag: x\nTag: y\n";
        let records = stanzas(text);
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].key, "pkg:a");
        assert_eq!(records[0].fields[1], ("Version".into(), "1:2".into()));
        assert_eq!(records[0].fields[2].1, "short\n long\n .\n more");
        assert_eq!(records[1].fields, [("Package".into(), "b".into()), ("Tag".into(), "y".into())]);
    }

    #[test]
    fn what_is_no_package_is_left_out() {
        assert!(stanzas(b"\n\nVersion: 1\n\ngarbage\n").is_empty());
    }
}
