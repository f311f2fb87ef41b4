//! Reads every record back and compares it with the acknowledged writes.

use bytes::Bytes;
use client::cluster_client::{Call, ClusterClient, Outcome};
use client::table::count;
use resp::Reply;

use super::load::{Expected, Ledger, VISITS};
use super::records::Record;
use super::screen::{self, Proof};
use super::story::Story;

/// Number of records of one batch.
const AT_ONCE: usize = 256;
/// Maximum number of lost writes that are described.
const DESCRIBED_MAX: usize = 5;

#[derive(Default)]
struct Verified {
    records: u64,
    /// Records that hold their last acknowledged write.
    held: u64,
    open: u64,
    acknowledged: u64,
    wrong_reads: u64,
    /// Descriptions of the first few lost writes, and the total number.
    lost: Vec<String>,
    lost_count: u64,
}

impl Verified {
    fn proof(&self) -> Proof {
        let holds = self.lost_count == 0 && self.wrong_reads == 0;
        let n = |number: u64| count(number as f64);
        let mut lines = vec![format!(
            "{}: {} records were read back; {} of them hold the last of {} acknowledged writes. Lost: {}.",
            if holds { "No acknowledged write is lost" } else { "ACKNOWLEDGED WRITES ARE MISSING" },
            n(self.records),
            n(self.held),
            n(self.acknowledged),
            n(self.lost_count)
        )];
        lines.push(format!(
            "Reads during the run that missed an acknowledged write: {}. Writes without an answer, which may be \
             there or not: {}.",
            n(self.wrong_reads),
            n(self.open)
        ));
        lines.extend(self.lost.iter().cloned());
        Proof { holds, lines }
    }
}

/// Reads every record back, shows the result, and returns true if nothing is missing.
pub async fn verify(story: &mut Story, ledger: &Ledger) -> bool {
    let (client, records) = (story.client.clone(), story.records.clone());
    let mut verified = Verified {
        wrong_reads: ledger.wrong_reads,
        acknowledged: ledger.acknowledged,
        ..Verified::default()
    };
    for (part, expected) in records.chunks(AT_ONCE).zip(ledger.expected.chunks(AT_ONCE)) {
        check(&client, part, expected, &mut verified).await;
        story.status(&format!(
            "read back: {} of {} records",
            count(verified.records as f64),
            count(records.len() as f64)
        ));
    }
    let proof = verified.proof();
    story.painter.tell(&screen::proof(&proof));
    story.scene.status.clear();
    let holds = proof.holds;
    story.scene.proof = Some(proof);
    story.paint();
    holds
}

async fn check(client: &ClusterClient, part: &[Record], expected: &[Expected], verified: &mut Verified) {
    let read = |record: &Record| Call::new(vec!["HGETALL".into(), record.key.clone()], true);
    let calls: Vec<Call> = part.iter().map(read).collect();
    let outcomes = client.call_many(&calls).await;
    for ((record, expected), outcome) in part.iter().zip(expected).zip(&outcomes) {
        verified.records += 1;
        verified.open += expected.open.len() as u64;
        let Some(difference) = difference(record, expected, outcome) else {
            verified.held += u64::from(expected.acknowledged > 0);
            continue;
        };
        verified.lost_count += 1;
        if verified.lost.len() < DESCRIBED_MAX {
            verified.lost.push(format!("{}: {difference}", String::from_utf8_lossy(&record.key)));
        }
    }
}

/// Describes how a record differs from the ledger.
fn difference(record: &Record, expected: &Expected, outcome: &Outcome) -> Option<String> {
    let reply = match outcome {
        Outcome::Done(reply) if !reply.is_error() => reply,
        other => return Some(format!("cannot be read: {other:?}")),
    };
    let Some(mut found) = pairs(reply) else { return Some("is not a hash".into()) };
    let visits = found.iter().position(|(name, _)| name == VISITS).map(|at| found.swap_remove(at).1);
    let visits = visits.map_or(Some(0), |text| std::str::from_utf8(&text).ok()?.parse().ok());
    if !visits.is_some_and(|visits| expected.allows(visits)) {
        return Some(format!("visits is {visits:?}, acknowledged was {}", expected.acknowledged));
    }
    let mut loaded = record.fields.clone();
    loaded.sort();
    found.sort();
    (loaded != found).then(|| format!("{} fields differ from the {} loaded", found.len(), loaded.len()))
}

fn pairs(reply: &Reply) -> Option<Vec<(Bytes, Bytes)>> {
    let bulk = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => Some(bytes.clone()),
        _ => None,
    };
    match reply {
        Reply::Array(items) if items.len() % 2 == 0 => {
            items.chunks(2).map(|pair| Some((bulk(&pair[0])?, bulk(&pair[1])?))).collect()
        }
        Reply::Map(items) => items.iter().map(|(name, value)| Some((bulk(name)?, bulk(value)?))).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(fields: &[(&str, &str)]) -> Outcome {
        let flat = fields.iter().flat_map(|(name, value)| [name.to_string(), value.to_string()]);
        Outcome::Done(Reply::Array(flat.map(Reply::bulk).collect()))
    }

    #[test]
    fn a_missing_field_a_changed_one_and_a_lost_write_are_found() {
        let fields = vec![("b".into(), "2".into()), ("a".into(), "1".into())];
        let record = Record { key: "pkg:x".into(), fields };
        let expected = Expected { acknowledged: 4, open: vec![6] };
        let check = |fields: &[(&str, &str)]| difference(&record, &expected, &outcome(fields)).is_none();
        assert!(check(&[("a", "1"), ("b", "2"), ("visits", "4")]));
        assert!(check(&[("visits", "6"), ("a", "1"), ("b", "2")]));
        assert!(!check(&[("a", "1"), ("b", "2"), ("visits", "3")]));
        assert!(!check(&[("a", "1"), ("b", "2")]));
        assert!(!check(&[("a", "1"), ("visits", "4")]));
        assert!(!check(&[("a", "1"), ("b", "3"), ("visits", "4")]));
        assert!(!check(&[]));
        assert!(difference(&record, &expected, &Outcome::Unknown("gone".into())).is_some());
    }
}
