//! Judges journals: one member that is only appended to and read, where every text is appended once
//! and ends with the only `;` in it. Such a history needs no search, however many of its appends
//! overlap.
//!
//! The longest text that a read returned gives the order of the appends in it, and every read has
//! its place between two of them. This order is an explanation if no operation in it ended before
//! an earlier one began. Appends that no read returned come after it, and can be left out if they
//! are open.

use std::collections::BTreeMap;

use crate::history::{Answer, Call, Member, Operation};

/// The end of an appended text.
const END_OF_TEXT: char = ';';

/// An append that no read has returned yet.
struct Append {
    began: u64,
    ended: u64,
    /// The value's length after it, if it was answered.
    length: Option<u64>,
}

/// A read by the length of the text that it returned.
struct Read {
    length: usize,
    began: u64,
    ended: u64,
}

/// Returns the verdict on a journal's history without open reads. Returns `None` if the history is
/// of another kind, or if the answered appends that no read returned could all be explained.
pub(super) fn is_linearizable(operations: &[Operation]) -> Option<bool> {
    let mut appends: BTreeMap<&str, Append> = BTreeMap::new();
    let mut reads: Vec<Read> = Vec::new();
    let mut whole = "";
    let mut member: Option<Member> = None;
    let mut is_possible = true;
    for Operation { call, began, ended, .. } in operations {
        let began = *began;
        let at = match (call, ended) {
            (Call::Append(at, text), ended) => {
                if text.find(END_OF_TEXT)? + END_OF_TEXT.len_utf8() != text.len() {
                    return None;
                }
                let length = match ended {
                    Some((_, Answer::Length(length))) => Some(*length),
                    None => None,
                    Some(_) => {
                        is_possible = false;
                        None
                    }
                };
                let ended = ended.as_ref().map_or(u64::MAX, |(at, _)| *at);
                if appends.insert(text, Append { began, ended, length }).is_some() {
                    return None;
                }
                at
            }
            (Call::Read(members), Some((ended, Answer::Values(values)))) => {
                let ([at], [value]) = (members.as_slice(), values.as_slice()) else { return None };
                let text = value.as_deref().unwrap_or_default();
                // No append leaves an empty value.
                is_possible &= value.as_deref() != Some("");
                is_possible &= whole.starts_with(text) || text.starts_with(whole);
                if text.len() > whole.len() {
                    whole = text;
                }
                reads.push(Read { length: text.len(), began, ended: *ended });
                at
            }
            _ => return None,
        };
        if *member.get_or_insert(*at) != *at {
            return None;
        }
    }
    if !is_possible {
        return Some(false);
    }
    reads.sort_unstable_by_key(|read| read.length);
    let mut reads = reads.into_iter().peekable();
    // The last beginning in the order so far. No later operation ended before it.
    let mut last_began = 0;
    let mut length = 0;
    let mut texts = whole.split_inclusive(END_OF_TEXT);
    loop {
        // Reads of the same text may be in any order.
        let mut read_began = last_began;
        while let Some(read) = reads.next_if(|read| read.length == length) {
            if read.ended < last_began {
                return Some(false);
            }
            read_began = read_began.max(read.began);
        }
        last_began = read_began;
        let Some(text) = texts.next() else { break };
        let Some(append) = appends.remove(text) else { return Some(false) };
        length += text.len();
        if append.ended < last_began || append.length.is_some_and(|told| told != length as u64) {
            return Some(false);
        }
        last_began = last_began.max(append.began);
    }
    // A read whose text ends within an append, or not with one.
    if reads.next().is_some() {
        return Some(false);
    }
    let unread = || appends.values().filter(|append| append.length.is_some());
    if unread().any(|append| append.ended < last_began || append.length <= Some(length as u64)) {
        return Some(false);
    }
    unread().next().is_none().then_some(true)
}
