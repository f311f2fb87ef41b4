//! The scripts that clients name by their digests (`EVALSHA`). Each store knows those that were
//! sent to it, as a node of Redis does: a client that gets `NOSCRIPT` sends the script itself. The
//! log has no part in this, because its entries hold the scripts.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;
use resp::Reply;

/// Maximum memory of the scripts in bytes. Beyond it, those that were not used for the longest time
/// are forgotten.
const BYTES_MAX: usize = 16 << 20;
/// Memory of a script in bytes, in addition to its text.
const SCRIPT_BYTES: usize = 200;
/// Scripts that are longer, in bytes, are known only after `SCRIPT LOAD`.
const NOTED_BYTES_MAX: usize = 64 << 10;

struct Known {
    body: Bytes,
    /// The number of the last use.
    used: u64,
}

#[derive(Default)]
struct State {
    known: HashMap<String, Known>,
    bytes: usize,
    uses: u64,
}

#[derive(Default)]
pub struct Scripts(Mutex<State>);

impl Scripts {
    /// Returns the script with a digest, in any case.
    pub fn get(&self, digest: &[u8]) -> Option<Bytes> {
        let digest = std::str::from_utf8(digest).ok().filter(|text| text.len() == script::DIGEST_LEN)?;
        let mut state = self.0.lock();
        state.uses += 1;
        let used = state.uses;
        let known = match state.known.get_mut(digest) {
            Some(known) => known,
            None => state.known.get_mut(&digest.to_ascii_lowercase())?,
        };
        known.used = used;
        Some(known.body.clone())
    }

    /// Returns the number of scripts.
    pub fn count(&self) -> usize {
        self.0.lock().known.len()
    }

    /// Learns a script that a client executes, if it is not too long and can be compiled.
    pub fn note(&self, body: &[u8]) {
        if body.len() > NOTED_BYTES_MAX {
            return;
        }
        let digest = script::digest(body);
        if self.get(digest.as_bytes()).is_none() && script::compile(body).is_ok() {
            self.insert(digest, body);
        }
    }

    /// Learns a script and returns its digest.
    ///
    /// # Errors
    /// The reply to the client, if the script cannot be compiled.
    pub fn load(&self, body: &[u8]) -> Result<String, Reply> {
        if body.len() + SCRIPT_BYTES > BYTES_MAX {
            return Err(Reply::error(format!("ERR a store keeps scripts of at most {BYTES_MAX} bytes")));
        }
        script::compile(body)?;
        let digest = script::digest(body);
        if self.get(digest.as_bytes()).is_none() {
            self.insert(digest.clone(), body);
        }
        Ok(digest)
    }

    fn insert(&self, digest: String, body: &[u8]) {
        let mut state = self.0.lock();
        state.uses += 1;
        // A copy, so that the script does not hold the buffer in which it arrived.
        let known = Known { body: Bytes::copy_from_slice(body), used: state.uses };
        state.bytes += body.len() + SCRIPT_BYTES;
        if let Some(known) = state.known.insert(digest, known) {
            state.bytes -= known.body.len() + SCRIPT_BYTES;
        }
        while state.bytes > BYTES_MAX {
            let oldest = state.known.iter().min_by_key(|(_, known)| known.used);
            let Some(digest) = oldest.map(|(digest, _)| digest.clone()) else { break };
            if let Some(known) = state.known.remove(&digest) {
                state.bytes -= known.body.len() + SCRIPT_BYTES;
            }
        }
    }

    /// Forgets all scripts.
    pub fn clear(&self) {
        let mut state = self.0.lock();
        *state = State { uses: state.uses, ..State::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_that_were_not_used_for_the_longest_time_are_forgotten() {
        let scripts = Scripts::default();
        let body = |n: usize| format!("return {n} --{}", "x".repeat(1 << 20));
        let digests: Vec<String> = (0..8).map(|n| scripts.load(body(n).as_bytes()).unwrap()).collect();
        assert!(scripts.get(digests[0].to_uppercase().as_bytes()).is_some());
        for n in 8..16 {
            scripts.load(body(n).as_bytes()).unwrap();
        }
        assert!(scripts.get(digests[0].as_bytes()).is_some());
        assert!(scripts.get(digests[1].as_bytes()).is_none());
        assert!(scripts.0.lock().bytes <= BYTES_MAX);
        scripts.clear();
        assert!(scripts.get(digests[0].as_bytes()).is_none());
        assert_eq!(scripts.0.lock().bytes, 0);
    }

    #[test]
    fn a_script_that_cannot_be_compiled_is_not_known() {
        let scripts = Scripts::default();
        scripts.note(b"return (");
        assert!(scripts.get(script::digest(b"return (").as_bytes()).is_none());
        assert!(scripts.load(b"return (").is_err());
        scripts.note(b"return 1");
        assert_eq!(scripts.get(script::digest(b"return 1").as_bytes()).unwrap(), "return 1");
    }
}
