//! The tables of `steelyard ctl`: stores, regions, operators, settings and one store's status.

use std::time::Duration;

use client::admin::{
    CatchUpRow, ConfigRow, FlashRow, OperatorRow, RegionRow, StoreRow, StoreStatus, WindowRow,
};
use client::table::{bytes, count, duration, micros, Align, Table};
use Align::{Left, Right};

pub fn config_table(rows: &[ConfigRow]) -> Table {
    let mut table = Table::new([("setting", Left), ("value", Left), ("what it is", Left)]);
    for row in rows {
        table.row([row.name.clone(), row.value.clone(), row.note.clone()]);
    }
    table
}

/// Quarantined peers, pinned weights and shared devices have columns only if there are any.
pub fn stores_table(rows: &[StoreRow]) -> Table {
    let pinned = rows.iter().any(|row| row.data_weight.is_some() || row.leader_weight.is_some());
    let columns = [
        ("store", Right),
        ("state", Left),
        ("client", Left),
        ("device", Left),
        ("i/o", Right),
        ("sync", Right),
        ("capability", Right),
        ("counts", Right),
        ("leaders", Right),
        ("regions", Right),
        ("used", Right),
        ("capacity", Right),
        ("ops/s", Right),
        ("p99", Right),
        ("cpu", Right),
        ("clock", Right),
        ("heard", Right),
    ];
    let shared = rows.iter().any(|row| !row.shares_device_with.is_empty());
    let quarantined = rows.iter().any(|row| row.quarantined > 0);
    // Without TLS on loopback there is nothing to say.
    let protected = rows.iter().any(|row| !["", "loopback"].contains(&row.peer_traffic.as_str()));
    let more = [
        (protected, ("peers", Left)),
        (quarantined, ("quarantined", Right)),
        (pinned, ("pinned", Left)),
        (shared, ("shares device with", Left)),
    ];
    let more = more.into_iter().filter_map(|(is_shown, column)| is_shown.then_some(column));
    let mut table = Table::new(columns.into_iter().chain(more));
    for row in rows {
        let cells = [
            row.id.to_string(),
            row.state.clone(),
            row.client.clone(),
            dash(&row.device),
            capability(row.io_bytes_per_s),
            sync(row.sync_us),
            estimate(row),
            correction(row),
            row.leaders.to_string(),
            row.regions.to_string(),
            bytes(row.used_bytes as f64),
            bytes(row.capacity_bytes as f64),
            count(row.ops_per_s),
            micros(row.p99_us as f64),
            cpu(row),
            row.clock_offset_ms.map_or("-".into(), clock_offset),
            row.heard_ms_ago.map_or("-".into(), |ms| format!("{ms} ms ago")),
        ];
        let held = quarantined.then(|| row.quarantined.to_string());
        let traffic = protected.then(|| row.peer_traffic.clone());
        let more = traffic
            .into_iter()
            .chain(held)
            .chain(pinned.then(|| pins(row)))
            .chain(shared.then(|| sharers(row)));
        table.row(cells.into_iter().chain(more));
    }
    table
}

/// The stores' use of RAM and flash.
pub fn flash_table(rows: &[FlashRow]) -> Table {
    let mut table = Table::new([
        ("store", Right),
        ("hits", Right),
        ("dirty", Right),
        ("clean", Right),
        ("cold now", Right),
        ("cold reads", Right),
        ("p50", Right),
        ("p99", Right),
        ("level 0", Right),
        ("pending", Right),
        ("debt", Right),
        ("written", Right),
        ("log", Right),
        ("flushes", Right),
        ("compactions", Right),
        ("w-amp", Right),
        ("space-amp", Right),
    ]);
    let factor = |factor: Option<f64>| factor.map_or("-".to_owned(), |factor| format!("{factor:.2}"));
    for row in rows {
        table.row([
            row.store.to_string(),
            row.hit_ratio().map_or("-".to_owned(), |ratio| format!("{:.1}%", ratio * 100.0)),
            bytes(row.dirty_bytes as f64),
            bytes(row.clean_bytes as f64),
            row.cold_in_flight.to_string(),
            count(row.cold_reads as f64),
            micros(row.cold_p50_us as f64),
            micros(row.cold_p99_us as f64),
            row.level0_files.to_string(),
            bytes(row.compaction_pending_bytes as f64),
            format!("{:.0}%", row.debt_percent),
            bytes(row.rows_bytes as f64),
            bytes(row.log_bytes as f64),
            bytes(row.flush_bytes as f64),
            bytes(row.compaction_bytes as f64),
            factor(row.write_amplification()),
            factor(row.space_amplification()),
        ]);
    }
    table
}

fn sharers(row: &StoreRow) -> String {
    let stores: Vec<String> = row.shares_device_with.iter().map(u64::to_string).collect();
    dash(&stores.join(", "))
}

fn pins(row: &StoreRow) -> String {
    let told = [("data", row.data_weight), ("leader", row.leader_weight)];
    let told = told.iter().filter_map(|(what, weight)| Some(format!("{what} {}", (*weight)?)));
    dash(&told.collect::<Vec<_>>().join(", "))
}

pub fn regions_table(rows: &[RegionRow]) -> Table {
    let mut table = Table::new([
        ("region", Right),
        ("slots", Left),
        ("leader", Right),
        ("term", Right),
        ("peers", Left),
        ("epoch", Left),
        ("keys", Right),
        ("size", Right),
        ("reads/s", Right),
        ("misses/s", Right),
        ("writes/s", Right),
    ]);
    for row in rows {
        let slots = match (row.first_slot, row.last_slot) {
            (Some(first), Some(last)) => format!("{first}-{last}"),
            _ => "meta".into(),
        };
        let peers = row.peers.iter().map(|peer| match (peer.role.as_str(), peer.lag) {
            _ if peer.unclean => format!("{}(unclean)", peer.store),
            _ if peer.quarantined.is_some() => format!("{}(quarantined)", peer.store),
            (role @ ("learner" | "incoming" | "outgoing"), _) => format!("{}({role})", peer.store),
            (_, Some(lag)) if lag > 0 => format!("{}(-{lag})", peer.store),
            _ => peer.store.to_string(),
        });
        table.row([
            row.id.to_string(),
            slots,
            row.leader.map_or("none".into(), |leader| leader.to_string()),
            row.term.to_string(),
            peers.collect::<Vec<_>>().join(" "),
            format!(
                "{}.{}{}",
                row.epoch_conf_version,
                row.epoch_version,
                if row.joint { " joint" } else { "" }
            ),
            count(row.keys as f64),
            bytes(row.bytes as f64),
            count(row.read_rate),
            count(row.miss_rate),
            count(row.write_rate),
        ]);
    }
    table
}

pub fn windows_table(rows: &[WindowRow]) -> Table {
    let mut table = Table::new([
        ("region", Right),
        ("leader", Right),
        ("commit", Right),
        ("promised", Right),
        ("written", Right),
        ("next", Right),
        ("in flight", Right),
        ("window", Right),
    ]);
    for row in rows {
        let counts = [
            row.region,
            row.leader,
            row.commit,
            row.promised,
            row.written,
            row.next,
            row.in_flight(),
            row.window,
        ];
        table.row(counts.map(|count| count.to_string()));
    }
    table
}

pub fn catch_up_table(rows: &[CatchUpRow]) -> Table {
    let mut table = Table::new([
        ("store", Right),
        ("regions", Right),
        ("behind", Right),
        ("entries", Right),
        ("unknown", Right),
    ]);
    for row in rows {
        let counts = [row.store, row.regions, row.behind, row.entries, row.unknown];
        table.row(counts.map(|count| count.to_string()));
    }
    table
}

pub fn operators_table(rows: &[OperatorRow], now_ms: u64) -> Table {
    let mut table = Table::new([
        ("region", Right),
        ("operator", Left),
        ("from", Right),
        ("to", Right),
        ("state", Left),
        ("started", Right),
        ("took", Right),
        ("reason", Left),
    ]);
    for row in rows {
        let since = |from: u64, to: u64| Duration::from_millis(to.saturating_sub(from));
        table.row([
            row.region.to_string(),
            row.kind.clone(),
            row.from.map_or("-".into(), |from| from.to_string()),
            row.to.map_or("-".into(), |to| to.to_string()),
            row.state.clone(),
            format!("{} ago", duration(since(row.started_unix_ms, now_ms))),
            row.finished_unix_ms
                .map_or("-".into(), |end| micros(since(row.started_unix_ms, end).as_micros() as f64)),
            row.reason.clone(),
        ]);
    }
    table
}

pub fn status_text(status: &StoreStatus) -> String {
    let mut text = format!(
        "store {}  version {}  pid {}  up {}\npolicy {}  fsync {}  cluster mode {}\n\n",
        status.store,
        status.version,
        status.pid,
        duration(Duration::from_secs(status.uptime_s)),
        status.policy,
        status.fsync,
        if status.cluster_enabled { "on" } else { "off" },
    );
    let mut stages = Table::new([
        ("stage", Left),
        ("count", Right),
        ("mean", Right),
        ("p50", Right),
        ("p99", Right),
        ("max", Right),
    ]);
    for row in &status.stages {
        stages.row([
            row.stage.clone(),
            count(row.count as f64),
            micros(row.mean_us),
            micros(row.p50_us as f64),
            micros(row.p99_us as f64),
            micros(row.max_us as f64),
        ]);
    }
    let mut counters = Table::new([("counter", Left), ("value", Right)]);
    for (name, value) in &status.counters {
        counters.row([name.clone(), count(*value as f64)]);
    }
    text += &format!("{stages}\n{counters}");
    text
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

/// Formats a capability. Stores with unknown capability count as equal, with 1 byte/s.
pub fn capability(bytes_per_s: f64) -> String {
    match bytes_per_s {
        unknown if unknown <= 1.0 => "-".into(),
        known => format!("{}/s", bytes(known)),
    }
}

/// Returns the store's configured or measured capability, and the spread of a measured one.
fn estimate(row: &StoreRow) -> String {
    let text = capability(row.capability_bytes_per_s / row.correction.max(f64::MIN_POSITIVE));
    match row.capability_spread {
        spread if spread > 1.0 && text != "-" => format!("{text} ±{:.0}%", (spread - 1.0) * 100.0),
        _ => text,
    }
}

fn sync(us: f64) -> String {
    match us {
        none if none <= 0.0 => "-".to_owned(),
        known => micros(known),
    }
}

/// Formats the cores that the store uses, the cores that it may use, and the busy share of these.
fn cpu(row: &StoreRow) -> String {
    match (row.cpu_own_cores, row.cpu_cores, row.cpu_busy) {
        (Some(own), Some(cores), Some(busy)) => {
            let places = usize::from(cores.fract() != 0.0);
            format!("{own:.1}/{cores:.places$} {:.0}%", busy * 100.0)
        }
        _ => "-".into(),
    }
}

/// Formats the difference between a wall clock and the stores' median.
fn clock_offset(ms: i64) -> String {
    format!("{:+.2} s", ms as f64 / 1000.0)
}

/// Formats the part of the capability that is in effect.
fn correction(row: &StoreRow) -> String {
    match row.capability_bytes_per_s {
        unknown if unknown <= 1.0 => "-".into(),
        _ if row.correction >= 0.1 => format!("{:.0}%", row.correction * 100.0),
        _ => format!("{:.1}%", row.correction * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::admin::PeerRow;

    #[test]
    fn a_measured_capability_is_shown_with_how_sure_it_is_and_a_told_one_without() {
        let row = |capability_spread| StoreRow {
            capability_bytes_per_s: 5e7,
            correction: 0.5,
            capability_spread,
            ..StoreRow::default()
        };
        assert!(stores_table(&[row(1.0)]).lines()[1].contains("100 MB/s  "));
        assert!(stores_table(&[row(1.3)]).lines()[1].contains("100 MB/s ±30%"));
        let unknown = StoreRow { capability_bytes_per_s: 1.0, ..row(0.0) };
        assert!(!stores_table(&[unknown]).lines()[1].contains('±'));
    }

    #[test]
    fn a_store_shows_the_cores_that_it_uses_and_how_busy_its_machine_is() {
        let row = |cores| StoreRow {
            cpu_cores: Some(cores),
            cpu_busy: Some(0.834),
            cpu_own_cores: Some(1.24),
            ..StoreRow::default()
        };
        assert_eq!([4.0, 1.5].map(|cores| cpu(&row(cores))), ["1.2/4 83%", "1.2/1.5 83%"]);
        assert_eq!(cpu(&StoreRow::default()), "-");
        let lines = stores_table(&[row(4.0)]).lines();
        let end = lines[0].find("cpu").unwrap() + "cpu".len();
        assert!(lines[1][..end].ends_with("1.2/4 83%"), "{lines:?}");
    }

    #[test]
    fn a_store_shows_how_far_its_clock_is_from_the_others() {
        assert_eq!([20, -86_400_000, 0].map(clock_offset), ["+0.02 s", "-86400.00 s", "+0.00 s"]);
        let row = |clock_offset_ms| StoreRow { clock_offset_ms, ..StoreRow::default() };
        let lines = stores_table(&[row(None), row(Some(-20))]).lines();
        let clock = lines[0].find("clock").unwrap();
        let shown =
            |line: usize| lines[line][..clock + "clock".len()].split_whitespace().last().unwrap().to_owned();
        assert_eq!((shown(1).as_str(), lines[2].contains("-0.02 s")), ("-", true));
    }

    #[test]
    fn stores_that_share_a_device_are_shown_with_the_others_on_it() {
        let row =
            |id, shares: &[u64]| StoreRow { id, shares_device_with: shares.to_vec(), ..Default::default() };
        let lines = stores_table(&[row(1, &[2, 3]), row(4, &[])]).lines();
        assert!(lines[0].ends_with("shares device with"), "{}", lines[0]);
        assert!(lines[1].ends_with("2, 3") && lines[2].ends_with('-'), "{lines:?}");
        assert!(!stores_table(&[row(4, &[])]).lines()[0].contains("shares"));
    }

    #[test]
    fn a_region_shows_its_lag_and_its_learners() {
        let peer = |store, role: &str, lag| {
            let quarantined = (store == 3).then(|| "rows".to_owned());
            PeerRow { store, id: store + 1, role: role.into(), lag, quarantined, unclean: false }
        };
        let row = RegionRow {
            id: 3,
            first_slot: Some(0),
            last_slot: Some(99),
            epoch_conf_version: 1,
            epoch_version: 2,
            joint: false,
            leader: None,
            term: 4,
            peers: vec![
                peer(0, "voter", Some(0)),
                peer(1, "voter", Some(12)),
                peer(2, "learner", None),
                peer(3, "voter", Some(1)),
            ],
            keys: 1234,
            bytes: 5_000_000,
            read_rate: 0.0,
            miss_rate: 0.0,
            write_rate: 10.4,
            heat: 10.0,
        };
        let line = &regions_table(&[row]).lines()[1];
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "3 0-99 none 4 0 1(-12) 2(learner) 3(quarantined) 1.2 1,234 5.0 MB 0 0 10"
        );
    }

    #[test]
    fn a_setting_is_shown_with_its_value_and_its_meaning() {
        let row = ConfigRow { name: "replicas".into(), value: "3".into(), note: "copies".into() };
        assert_eq!(config_table(&[row]).lines()[1], "replicas  3      copies");
    }
}
