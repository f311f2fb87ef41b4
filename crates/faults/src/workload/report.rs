//! The verdict over a recording.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::Notes;
use crate::history::{History, Operation};
use crate::linearizable::{check, Verdict, Violation};

/// The environment variable that names a directory for judged histories, so that another checker
/// can judge them again.
pub const HISTORIES_ENV: &str = "STEELYARD_HISTORIES";

#[derive(Debug)]
pub struct Report {
    name: String,
    pub histories: usize,
    pub operations: usize,
    /// The number of operations whose result the client never learned.
    pub unknown: usize,
    /// The number of commands that were refused without effect. They are in no history.
    pub refused: u64,
    pub lasted: Duration,
    pub violations: Vec<String>,
    /// Histories on which the checker gave up.
    pub undecided: Vec<String>,
    pub errors: Vec<String>,
}

/// A judged history, which is written for another checker as one line of JSON.
#[derive(Serialize)]
pub struct Judged<'a> {
    pub object: &'a str,
    pub linearizable: bool,
    pub operations: &'a [Operation],
}

pub(super) fn judge(name: &str, notes: Notes, lasted: Duration) -> Report {
    let mut report = Report {
        name: name.to_owned(),
        histories: notes.objects.len(),
        operations: 0,
        unknown: 0,
        refused: notes.refused,
        lasted,
        violations: Vec::new(),
        undecided: Vec::new(),
        errors: notes.errors,
    };
    let mut written = String::new();
    for (object, history) in &notes.objects {
        let label = object.label();
        report.operations += history.len();
        report.unknown += history.iter().filter(|operation| operation.ended.is_none()).count();
        let verdict = check(history);
        match &verdict {
            Verdict::Linearizable => {}
            Verdict::Violation(found) => report.violations.push(explain(&label, history, found)),
            Verdict::Undecided => report.undecided.push(label.clone()),
        }
        if verdict == Verdict::Undecided {
            let text = serde_json::to_string(history).expect("plain data");
            write_history(&format!("{name}-{label}.undecided"), &text);
        } else {
            let linearizable = verdict == Verdict::Linearizable;
            let judged = Judged { object: &label, linearizable, operations: history };
            let _ = writeln!(written, "{}", serde_json::to_string(&judged).expect("plain data"));
        }
    }
    write_history(&format!("{name}-{}.jsonl", std::process::id()), &written);
    report
}

fn write_history(file: &str, text: &str) {
    let Some(dir) = std::env::var_os(HISTORIES_ENV) else { return };
    let path = Path::new(&dir).join(file);
    let write = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&path, text));
    write.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

impl Report {
    /// Panics unless every history is linearizable and every reply was a possible one. Also panics,
    /// as *void*, if fewer than `least_per_second` operations were done, since the run has then
    /// shown nothing.
    pub fn expect(&self, least_per_second: f64) {
        let _ = writeln!(std::io::stderr(), "{self}");
        assert!(self.errors.is_empty(), "{self}\n{}", first(&self.errors));
        assert!(self.violations.is_empty(), "{self}\n{}", first(&self.violations));
        assert!(self.undecided.is_empty(), "VOID: {self}; undecided: {:?}", self.undecided);
        assert!(
            self.per_second() >= least_per_second,
            "VOID: {self}: {:.0} operations per second, but at least {least_per_second} are required",
            self.per_second()
        );
    }

    /// Returns the rate of operations whose result is known.
    pub fn per_second(&self) -> f64 {
        (self.operations - self.unknown) as f64 / self.lasted.as_secs_f64().max(0.001)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { name, histories, operations, unknown, refused, lasted, .. } = self;
        write!(
            f,
            "{name}: {histories} histories of {operations} operations in {:.1} s, {unknown} unknown, \
             {refused} refused, {} violations",
            lasted.as_secs_f64(),
            self.violations.len()
        )
    }
}

fn first(texts: &[String]) -> String {
    texts[..texts.len().min(3)].join("\n")
}

/// Describes the operation that could not be placed, and those that overlap or just precede it.
fn explain(label: &str, history: &History, found: &Violation) -> String {
    const BEFORE: usize = 12;
    let stuck = &history[found.stuck];
    let mut text = format!(
        "{label}: no order explains {stuck:?}\nthe longest partial order ends in {:?}:\n",
        found.state
    );
    for &index in &found.order[found.order.len().saturating_sub(BEFORE)..] {
        let _ = writeln!(text, "  {:?}", history[index]);
    }
    text.push_str("not in this order, and begun before it ended:\n");
    let end = stuck.ended.as_ref().map_or(u64::MAX, |(at, _)| *at);
    let left =
        (0..history.len()).filter(|index| !found.order.contains(index) && history[*index].began <= end);
    left.take(BEFORE).for_each(|index| {
        let _ = writeln!(text, "  {:?}", history[index]);
    });
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Object};
    use super::*;
    use crate::history::{Answer, Call};

    fn report(operations: u64, last: &str) -> Report {
        let operation = |n: u64| {
            let value = if n + 1 == operations { last } else { "" };
            let value = (!value.is_empty()).then(|| value.to_owned());
            let ended = Some((n * 10 + 5, Answer::Values(vec![value])));
            Operation { client: 0, call: Call::Read(vec![0]), began: n * 10, ended }
        };
        let mut notes = Notes::default();
        let object = Object { kind: Kind::Register, lane: 0, generation: 0 };
        notes.objects.insert(object, (0..operations).map(operation).collect());
        judge("test", notes, Duration::from_secs(2))
    }

    fn complaint(report: &Report, least_per_second: f64) -> String {
        let told = std::panic::catch_unwind(|| report.expect(least_per_second)).expect_err("a complaint");
        told.downcast_ref::<String>().expect("in words").clone()
    }

    #[test]
    fn a_run_that_did_too_little_is_void_and_one_with_a_violation_is_not() {
        report(100, "").expect(50.0);
        let told = complaint(&report(100, ""), 51.0);
        assert!(told.starts_with("VOID: test: 1 histories of 100 operations in 2.0 s"), "{told}");
        let told = complaint(&report(100, "nobody wrote this"), 51.0);
        assert!(!told.contains("VOID") && told.contains("no order explains"), "{told}");
    }
}
