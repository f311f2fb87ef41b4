//! `steelyard ctl audit`: the last changes that users asked for.

use client::admin::{AuditOutcome, AuditRecord, AuditRows};
use client::table::{Align, Table};
use time::OffsetDateTime;

/// Difference between the time of a change and the time of its record above which both are shown,
/// in milliseconds.
const LATE_MS: u64 = 10_000;

pub fn text(rows: &AuditRows) -> String {
    let Some(oldest) = rows.records.first() else { return "no changes are recorded\n".to_owned() };
    let mut table = Table::new([
        ("record", Align::Right),
        ("time (UTC)", Align::Left),
        ("store", Align::Right),
        ("user", Align::Left),
        ("address", Align::Left),
        ("change", Align::Left),
        ("outcome", Align::Left),
    ]);
    for record in &rows.records {
        let change = &record.change;
        table.row([
            record.id.to_string(),
            time(record),
            change.store.to_string(),
            user(change.user.as_deref()),
            word(&change.address),
            words(record),
            outcome(record),
        ]);
    }
    let mut text = table.to_string();
    if rows.first > 1 && oldest.id == rows.first {
        text += &format!("records 1 to {} were dropped\n", rows.first - 1);
    }
    text
}

fn time(record: &AuditRecord) -> String {
    let (at, recorded) = (record.change.at_ms, record.recorded_ms);
    match at.abs_diff(recorded) > LATE_MS {
        true => format!("{}, recorded {}", utc(at), utc(recorded)),
        false => utc(at),
    }
}

fn utc(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).ok();
    let Some(at) = seconds.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok()) else {
        return format!("{unix_ms} ms");
    };
    let (date, (hour, minute, second)) = (at.date(), at.to_hms());
    format!("{date} {hour:02}:{minute:02}:{second:02}")
}

/// Returns the user, or `none` if no login was required. A user may have that name.
fn user(name: Option<&str>) -> String {
    match name {
        None => "none".to_owned(),
        Some("none") => "\"none\"".to_owned(),
        Some(name) => word(name),
    }
}

fn words(record: &AuditRecord) -> String {
    let change = &record.change;
    let mut text = change.command.clone();
    for argument in &change.arguments {
        text.push(' ');
        text += &word(argument);
    }
    if change.left_out > 0 {
        text += &format!(" and {} more", change.left_out);
    }
    text
}

fn outcome(record: &AuditRecord) -> String {
    let name = record.outcome.name();
    match &record.reason {
        Some(reason) if record.outcome != AuditOutcome::Done => format!("{name}: {}", line(reason)),
        _ => name.to_owned(),
    }
}

/// Returns a word as it is, or in quotes with escapes if it could be taken for anything else than
/// one word of printable characters.
pub(super) fn word(text: &str) -> String {
    let is_plain =
        |character: char| !character.is_whitespace() && character != '"' && is_printable(character);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("{text:?}"),
    }
}

/// Returns a sentence with escapes in place of characters that could break or hide its line.
fn line(text: &str) -> String {
    let shown = |character: char| match is_printable(character) {
        true => character.to_string(),
        false => character.escape_debug().to_string(),
    };
    text.chars().map(shown).collect()
}

/// Returns true if a terminal shows the character as itself.
fn is_printable(character: char) -> bool {
    character == '\'' || character == '"' || character == '\\' || character.escape_debug().count() == 1
}

#[cfg(test)]
mod tests {
    use client::admin::AuditedChange;

    use super::*;

    fn record(user: Option<&str>, arguments: &[&str]) -> AuditRecord {
        AuditRecord {
            id: 7,
            recorded_ms: 1_700_000_000_500,
            change: AuditedChange {
                at_ms: 1_700_000_000_000,
                user: user.map(str::to_owned),
                address: "127.0.0.1:5000".into(),
                command: "config set".into(),
                arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
                ..AuditedChange::default()
            },
            outcome: AuditOutcome::Refused,
            reason: Some("it has\na newline".into()),
        }
    }

    #[test]
    fn a_record_is_one_line_whatever_its_texts_are() {
        let forged = "x\n8  2023-11-14 22:13:20  0  none";
        for argument in [forged, "\r", "\u{1b}[2K", "\u{202e}", "\u{85}", "\u{2028}", "a b", "", "\"", "é"] {
            let rows = AuditRows { first: 7, records: vec![record(Some(argument), &[argument])] };
            let text = text(&rows);
            assert_eq!(text.lines().count(), 3, "{argument:?}: {text}");
            assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}') && !text.contains('\u{2028}'));
        }
        let text = words(&record(None, &["maxclients", "a b", "é", "", "it's"]));
        assert_eq!(text, "config set maxclients \"a b\" é \"\" it's");
        assert_eq!(outcome(&record(None, &[])), "refused: it has\\na newline");
    }

    #[test]
    fn a_user_named_none_is_not_nobody() {
        assert_eq!([user(None), user(Some("none")), user(Some("ann"))], ["none", "\"none\"", "ann"]);
    }

    #[test]
    fn a_late_record_has_both_times_and_dropped_records_are_told() {
        let mut late = record(None, &[]);
        assert_eq!(time(&late), "2023-11-14 22:13:20");
        late.recorded_ms += 3_600_000;
        assert_eq!(time(&late), "2023-11-14 22:13:20, recorded 2023-11-14 23:13:20");
        let rows = AuditRows { first: 7, records: vec![late] };
        assert!(text(&rows).ends_with("records 1 to 6 were dropped\n"));
        assert_eq!(text(&AuditRows::default()), "no changes are recorded\n");
    }
}
