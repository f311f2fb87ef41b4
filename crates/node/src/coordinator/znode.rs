//! The contents of the znodes, as text that people can read.
//!
//! A znode with positions has one line for each region that seeks a leader:
//!
//! ```text
//! # region epoch lsn stands|votes
//! 3 7 12045 stands
//! ```

use std::fmt::Write;

use types::{LogIndex, RegionId, Term};

use super::{Position, Positions};

/// Maximum size of a znode's content in bytes. ZooKeeper refuses requests of 1 MiB.
const ZNODE_BYTES_MAX: usize = 900_000;

/// The content of a znode that no store writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableZnode {
    line: usize,
}

impl std::fmt::Display for UnreadableZnode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {} is not 'region epoch lsn stands|votes'", self.line)
    }
}

impl std::error::Error for UnreadableZnode {}

/// A region's peer, for people.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub region: RegionId,
    pub epoch: Term,
    pub lsn: LogIndex,
    pub leads: bool,
}

/// A region that the store leads, and the term in which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    pub region: RegionId,
    pub epoch: Term,
}

/// Returns the text of the positions of peers that seek a leader. Positions beyond the size of a
/// znode are left out; they follow once others have found a leader.
pub fn positions_text(positions: &Positions) -> String {
    let lines = positions.iter().map(|(region, position)| {
        let (epoch, lsn) = position.last;
        let role = if position.may_stand { "stands" } else { "votes" };
        format!("{region} {epoch} {lsn} {role}")
    });
    text("# region epoch lsn stands|votes\n".to_owned(), lines)
}

pub fn parse_positions(text: &str) -> Result<Positions, UnreadableZnode> {
    let mut positions = Positions::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let (region, position) = parse_line(line).ok_or(UnreadableZnode { line: at + 1 })?;
        positions.insert(region, position);
    }
    Ok(positions)
}

fn parse_line(line: &str) -> Option<(RegionId, Position)> {
    let mut words = line.split(' ');
    let region = words.next()?.parse().ok()?;
    let last = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let may_stand = match words.next()? {
        "stands" => true,
        "votes" => false,
        _ => return None,
    };
    words.next().is_none().then_some((region, Position { last, may_stand }))
}

/// Returns the text of a store's own znode.
pub fn store_text(head: &[(&str, String)], places: &[Place]) -> String {
    let mut begin = String::new();
    for (name, value) in head {
        let _ = writeln!(begin, "{name} {value}");
    }
    begin.push_str("# region epoch lsn leads|follows\n");
    let lines = places.iter().map(|place| {
        let role = if place.leads { "leads" } else { "follows" };
        format!("{} {} {} {role}", place.region, place.epoch, place.lsn)
    });
    text(begin, lines)
}

/// Returns the text of a store's part of the leader table.
pub fn leads_text(address: &str, leads: &[Lead]) -> String {
    let lines = leads.iter().map(|lead| format!("{} {}", lead.region, lead.epoch));
    text(format!("address {address}\n# region epoch\n"), lines)
}

fn text(mut begin: String, lines: impl Iterator<Item = String>) -> String {
    let mut left_out = 0;
    for line in lines {
        if begin.len() + line.len() + 1 > ZNODE_BYTES_MAX {
            left_out += 1;
            continue;
        }
        begin.push_str(&line);
        begin.push('\n');
    }
    if left_out > 0 {
        let _ = writeln!(begin, "# {left_out} more");
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_were_written() {
        let position = |epoch, lsn, may_stand| Position { last: (epoch, lsn), may_stand };
        let positions = Positions::from([(0, position(7, 12_045, true)), (3, position(u64::MAX, 0, false))]);
        let text = positions_text(&positions);
        assert_eq!(
            text,
            "# region epoch lsn stands|votes\n0 7 12045 stands\n3 18446744073709551615 0 votes\n"
        );
        assert_eq!(parse_positions(&text), Ok(positions));
        assert_eq!(parse_positions(""), Ok(Positions::new()));
    }

    #[test]
    fn other_text_is_refused_with_its_line() {
        for (text, line) in [
            ("x", 1),
            ("1 2 3", 1),
            ("1 2 3 stands \n", 1),
            ("# region\n1 2 3 leads\n", 2),
            ("1 2 3 stands\n\n", 2),
            ("1 2 18446744073709551616 votes", 1),
            ("-1 2 3 votes", 1),
        ] {
            assert_eq!(parse_positions(text), Err(UnreadableZnode { line }), "{text:?}");
        }
    }

    #[test]
    fn a_text_stays_within_a_znode_and_says_what_is_left_out() {
        let position = Position { last: (u64::MAX, u64::MAX), may_stand: true };
        let positions: Positions = (0..30_000).map(|region| (region, position)).collect();
        let text = positions_text(&positions);
        assert!(text.len() <= ZNODE_BYTES_MAX + 20 && text.len() > ZNODE_BYTES_MAX - 100);
        let read = parse_positions(&text).unwrap();
        assert!(text.ends_with(&format!("# {} more\n", 30_000 - read.len())), "{} are read", read.len());
    }

    #[test]
    fn the_texts_for_people_have_a_head() {
        let places = [Place { region: 4, epoch: 2, lsn: 9, leads: true }];
        let text = store_text(&[("address", "10.0.0.1:7000".to_owned())], &places);
        assert_eq!(text, "address 10.0.0.1:7000\n# region epoch lsn leads|follows\n4 2 9 leads\n");
        let text = leads_text("10.0.0.1:7000", &[Lead { region: 4, epoch: 2 }]);
        assert_eq!(text, "address 10.0.0.1:7000\n# region epoch\n4 2\n");
    }
}
