//! Hash tags for the keys of a session, so that a program for one store also runs in cluster
//! mode.

use std::net::SocketAddr;

use resp::Reply;

use super::{Args, Step};
use crate::connection::Connection;

pub struct Tags {
    tag: String,
    /// A server that names the keys of a command.
    asked: Connection,
}

impl Tags {
    pub fn new(tag: String, asked: SocketAddr) -> Tags {
        Tags { tag, asked: Connection::open(asked).expect("the server accepts connections") }
    }

    /// Gives every key of the step the tag.
    pub fn apply(&mut self, step: &mut Step) {
        match step {
            Step::One(request) => self.tag_keys(&mut request.args),
            // A walk has no cursor yet, so the server would not know its key.
            Step::Walk { args, cursor_at: 2 } => self.tag(&mut args[1]),
            Step::Walk { .. } | Step::Count => {}
        }
    }

    fn tag_keys(&mut self, args: &mut Args) {
        // Redis finds no key in it.
        if args.len() == 2 && args[0].eq_ignore_ascii_case(b"PFMERGE") {
            return self.tag(&mut args[1]);
        }
        let question = [&[b"COMMAND".to_vec(), b"GETKEYS".to_vec()], args.as_slice()].concat();
        let Ok(Reply::Array(keys)) = self.asked.call(&question) else { return };
        // The keys come in the order of the arguments, except for a destination behind its sources.
        let mut is_tagged = vec![false; args.len()];
        for key in &keys {
            let Reply::Bulk(key) = key else { continue };
            let is_it =
                |at: &usize| !is_tagged[*at] && Some(*at) != count_at(&args[0]) && args[*at] == key[..];
            let at = (1..args.len()).find(is_it);
            is_tagged[at.expect("an argument")] = true;
        }
        for (arg, _) in args.iter_mut().zip(is_tagged).filter(|(_, is_key)| *is_key) {
            self.tag(arg);
        }
    }

    /// Gives one key the tag.
    pub fn tag(&self, key: &mut Vec<u8>) {
        // A key with a tag of its own gets another form, because the first tag counts.
        key.retain(|byte| !b"{}".contains(byte));
        key.extend(self.tag.as_bytes());
    }
}

/// Returns the position of the number of keys, which may also be the name of a key.
fn count_at(name: &[u8]) -> Option<usize> {
    match &name.to_ascii_uppercase()[..] {
        b"SINTERCARD" | b"ZINTERCARD" | b"ZUNION" | b"ZINTER" | b"ZDIFF" | b"LMPOP" | b"ZMPOP" => Some(1),
        b"ZUNIONSTORE" | b"ZINTERSTORE" | b"ZDIFFSTORE" | b"BLMPOP" | b"BZMPOP" => Some(2),
        _ => None,
    }
}
