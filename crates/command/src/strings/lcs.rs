//! `LCS`: the longest common subsequence, computed from a table over all pairs of prefixes.

use bytes::Bytes;
use resp::Reply;
use storage::{Meta, Value};

use crate::error_messages;
use crate::exec::{fail, CommandResult, Exec};
use crate::number::integer;

#[derive(Default)]
struct Options {
    len: bool,
    idx: bool,
    min_match_len: i64,
    with_match_len: bool,
}

impl Options {
    fn parse(args: &[Bytes]) -> CommandResult<Options> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let is = |name: &str| arg.eq_ignore_ascii_case(name.as_bytes());
            if is("IDX") {
                options.idx = true;
            } else if is("LEN") {
                options.len = true;
            } else if is("WITHMATCHLEN") {
                options.with_match_len = true;
            } else if is("MINMATCHLEN") {
                let Some(value) = args.next() else { return fail(error_messages::SYNTAX) };
                options.min_match_len = integer(value)?.max(0);
            } else {
                return fail(error_messages::SYNTAX);
            }
        }
        match options.len && options.idx {
            true => fail("ERR If you want both the length and indexes, please just use IDX."),
            false => Ok(options),
        }
    }
}

pub(crate) fn lcs(args: &[Bytes], exec: &mut Exec<'_, '_>) -> CommandResult {
    let (a, b) = (string_or_empty(&args[1], exec)?, string_or_empty(&args[2], exec)?);
    let options = Options::parse(&args[3..])?;
    let cells = (a.len() as u64 + 1).checked_mul(b.len() as u64 + 1);
    let bytes = cells.and_then(|cells| cells.checked_mul(4));
    if bytes.is_none_or(|bytes| bytes > exec.limits.max_value_bytes) {
        return fail("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
    }
    let table = Table::new(&a, &b);
    let len = i64::from(table.at(a.len(), b.len()));
    if options.len {
        return Ok(Reply::Int(len));
    }
    if !options.idx {
        return Ok(Reply::bulk(table.subsequence(&a, &b)));
    }
    let matches = table
        .matches(&a, &b)
        .into_iter()
        .filter(|found| found.len as i64 >= options.min_match_len)
        .map(|found| {
            let range = |from: usize| {
                let end = from + found.len - 1;
                Reply::Array(vec![Reply::Int(from as i64), Reply::Int(end as i64)])
            };
            let mut entry = vec![range(found.a), range(found.b)];
            if options.with_match_len {
                entry.push(Reply::Int(found.len as i64));
            }
            Reply::Array(entry)
        })
        .collect();
    let (matches_name, len_name) = (Reply::bulk("matches"), Reply::bulk("len"));
    Ok(Reply::Map(vec![(matches_name, Reply::Array(matches)), (len_name, Reply::Int(len))]))
}

fn string_or_empty(key: &[u8], exec: &mut Exec<'_, '_>) -> CommandResult<Bytes> {
    let key = exec.key(key);
    match exec.find(&key)? {
        None => Ok(Bytes::new()),
        Some(Meta { value: Value::String(bytes), .. }) => Ok(bytes),
        Some(_) => fail("ERR The specified keys must contain string values"),
    }
}

/// The lengths for all pairs of prefixes. `at(i, j)` is the length for the first `i` bytes of `a`
/// and the first `j` bytes of `b`.
struct Table {
    width: usize,
    lengths: Vec<u32>,
}

struct Match {
    a: usize,
    b: usize,
    len: usize,
}

impl Table {
    fn new(a: &[u8], b: &[u8]) -> Table {
        let width = b.len() + 1;
        let mut lengths = vec![0; (a.len() + 1) * width];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                lengths[i * width + j] = match a[i - 1] == b[j - 1] {
                    true => lengths[(i - 1) * width + j - 1] + 1,
                    false => lengths[(i - 1) * width + j].max(lengths[i * width + j - 1]),
                };
            }
        }
        Table { width, lengths }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.lengths[i * self.width + j]
    }

    /// Returns the pairs of matching positions, from last to first. Walks back from the end and
    /// makes Redis's choice if both directions are equally long.
    fn pairs(&self, a: &[u8], b: &[u8]) -> Vec<(usize, usize)> {
        let (mut i, mut j) = (a.len(), b.len());
        let mut pairs = Vec::new();
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                i -= 1;
                j -= 1;
                pairs.push((i, j));
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        pairs
    }

    fn subsequence(&self, a: &[u8], b: &[u8]) -> Vec<u8> {
        self.pairs(a, b).into_iter().rev().map(|(i, _)| a[i]).collect()
    }

    /// Returns the runs of adjacent pairs, starting with the last one in the strings.
    fn matches(&self, a: &[u8], b: &[u8]) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        for (i, j) in self.pairs(a, b) {
            match matches.last_mut() {
                Some(run) if run.a == i + 1 && run.b == j + 1 => {
                    *run = Match { a: i, b: j, len: run.len + 1 }
                }
                _ => matches.push(Match { a: i, b: j, len: 1 }),
            }
        }
        matches
    }
}
