//! The libraries of functions. The list of stores carries the version of their last change only;
//! stores ask for libraries that they do not know.
//!
//! This crate knows a library by its name, its code and its functions as text. In the code and in
//! descriptions a character stands for a byte.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use types::THIRD_VERSION;

use super::{MetaState, Object};
use crate::MetaError;

/// Maximum number of bytes of all libraries, as they are written in rows.
pub const LIBRARIES_BYTES_MAX: usize = 8 << 20;
/// The error for more.
pub const LIBRARIES_TOO_LONG: &str = "the libraries are too long: 8 MiB in all is the maximum";
/// Bytes of a library and of a function in addition to their text.
const RECORD_BYTES: usize = 128;

/// A function of a library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionRecord {
    pub name: String,
    pub description: Option<String>,
    /// The names of its flags.
    pub flags: Vec<String>,
}

/// A library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryRecord {
    pub code: String,
    pub functions: Vec<FunctionRecord>,
    /// The version of the libraries in which this one was created or replaced.
    #[serde(default)]
    pub since: u64,
}

impl LibraryRecord {
    /// Returns the bytes of the library in a command.
    pub fn bytes(&self) -> usize {
        let of_function = |function: &FunctionRecord| {
            let flags: usize = function.flags.iter().map(String::len).sum();
            let description = function.description.as_deref().map_or(0, written_bytes);
            function.name.len() + description + flags + RECORD_BYTES
        };
        let functions: usize = self.functions.iter().map(of_function).sum();
        written_bytes(&self.code) + functions + RECORD_BYTES
    }
}

/// Returns the bytes of a text in JSON.
fn written_bytes(text: &str) -> usize {
    let of_character = |character: char| match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        character if character < ' ' => 6,
        character => character.len_utf8(),
    };
    text.chars().map(of_character).sum()
}

impl MetaState {
    /// Changes libraries. See [`MetaCommand::SetLibraries`](crate::MetaCommand::SetLibraries).
    pub(super) fn set_libraries(
        &mut self,
        expected: u64,
        changes: &BTreeMap<String, Option<LibraryRecord>>,
        replace: bool,
        changed: &mut Vec<Object>,
    ) -> Result<(), MetaError> {
        if self.version < THIRD_VERSION {
            return Err(MetaError::BadLibraries(
                "libraries need version 3 of the cluster: see steelyard ctl versions",
            ));
        }
        if expected != self.libraries_version {
            return Err(MetaError::LibrariesChanged);
        }
        let version = self.members_version + 1;
        let is_named = |name: &String| changes.contains_key(name);
        let kept = self.libraries.iter().filter(|(name, _)| !replace && !is_named(name));
        let set = || changes.iter().filter_map(|(name, library)| Some((name, library.as_ref()?)));
        let mut names = BTreeSet::new();
        let mut bytes = 0;
        for (name, library) in kept.chain(set()) {
            bytes += name.len() + library.bytes();
            let mut functions = library.functions.iter().map(|function| function.name.to_ascii_lowercase());
            // Within a library, names may differ in case only.
            let own: BTreeSet<String> = functions.by_ref().collect();
            if !own.iter().all(|function| names.insert(function.clone())) {
                return Err(MetaError::BadLibraries("two libraries have a function of the same name"));
            }
        }
        if bytes > LIBRARIES_BYTES_MAX {
            return Err(MetaError::BadLibraries(LIBRARIES_TOO_LONG));
        }
        let gone = self.libraries.keys().filter(|name| replace || is_named(name)).cloned();
        let differing: BTreeSet<String> = gone.chain(set().map(|(name, _)| name.clone())).collect();
        if differing.is_empty() {
            return Ok(());
        }
        for name in &differing {
            self.libraries.remove(name);
        }
        for (name, library) in changes.iter().filter_map(|(name, library)| Some((name, library.as_ref()?))) {
            self.libraries.insert(name.clone(), LibraryRecord { since: version, ..library.clone() });
        }
        self.libraries_version = version;
        self.members_version = version;
        changed.extend(differing.into_iter().map(Object::Library));
        changed.push(Object::Counters);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::begun;
    use crate::{MetaCommand, MetaReply};

    fn library(code: &str, functions: &[&str]) -> LibraryRecord {
        let function = |name: &&str| FunctionRecord {
            name: (*name).to_owned(),
            description: None,
            flags: vec!["no-writes".into()],
        };
        LibraryRecord { code: code.into(), functions: functions.iter().map(function).collect(), since: 0 }
    }

    fn set(expected: u64, changes: &[(&str, Option<LibraryRecord>)], replace: bool) -> MetaCommand {
        let changes = changes.iter().map(|(name, library)| ((*name).to_owned(), library.clone()));
        let command = MetaCommand::SetLibraries { expected, changes: changes.collect(), replace };
        assert_eq!(MetaCommand::decode(&command.encode()).as_ref(), Ok(&command));
        command
    }

    #[test]
    fn libraries_change_if_they_are_the_expected_ones_and_fit() {
        let mut state = begun(1, 1);
        let one = set(0, &[("a", Some(library("x", &["f", "F"])))], false);
        state.version = THIRD_VERSION - 1;
        assert!(matches!(state.apply(&one, 1), Err(MetaError::BadLibraries(_))));
        state.version = THIRD_VERSION;
        assert_eq!(state.apply(&one, 1), Ok(MetaReply::Changed));
        let first = state.libraries_version;
        assert!(first > 0 && first == state.members_version && state.libraries["a"].since == first);
        assert_eq!(state.apply(&one, 1), Err(MetaError::LibrariesChanged));
        let same = set(first, &[("b", Some(library("y", &["f"])))], false);
        assert!(matches!(state.apply(&same, 1), Err(MetaError::BadLibraries(_))));
        let upper = set(first, &[("b", Some(library("y", &["F"])))], false);
        assert!(matches!(state.apply(&upper, 1), Err(MetaError::BadLibraries(_))));
        let moved = set(first, &[("b", Some(library("y", &["f"]))), ("a", None)], false);
        assert_eq!(state.apply(&moved, 1), Ok(MetaReply::Changed));
        let second = state.libraries_version;
        assert_eq!(state.libraries.keys().collect::<Vec<_>>(), ["b"]);
        for long in ["x".repeat(LIBRARIES_BYTES_MAX), "\u{1}".repeat(LIBRARIES_BYTES_MAX / 6)] {
            let long = set(second, &[("c", Some(library(&long, &[])))], false);
            assert!(matches!(state.apply(&long, 1), Err(MetaError::BadLibraries(_))));
        }
        assert_eq!((state.libraries_version, state.libraries.len()), (second, 1));
        assert_eq!(state.apply(&set(second, &[("none", None)], false), 1), Ok(MetaReply::Unchanged));
        let all = set(second, &[("d", Some(library("z", &["f"])))], true);
        assert_eq!(state.apply(&all, 1), Ok(MetaReply::Changed));
        assert_eq!(state.libraries.keys().collect::<Vec<_>>(), ["d"]);
        let third = state.libraries_version;
        assert_eq!(state.apply(&set(third, &[], true), 1), Ok(MetaReply::Changed));
        assert!(state.libraries.is_empty() && state.libraries_version > third);
    }

    #[test]
    fn the_bytes_of_a_text_are_those_of_its_json() {
        for text in ["", "a\n\"\\\t\u{8}\u{c}\r", "\0\u{1f}\u{7f}\u{80}\u{ff}"] {
            assert_eq!(written_bytes(text) + 2, serde_json::to_string(text).unwrap().len(), "{text:?}");
        }
    }
}
