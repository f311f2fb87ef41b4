//! INFO, with Redis's sections and field names, so that dashboards for Redis work.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use node::unsynced::Damaged;
use resp::Reply;

use super::statistics_commands;
use crate::cpu;
use crate::flash;
use crate::resident::resident_bytes;
use crate::store::Store;

/// The sections, and whether they are shown without being named.
const SECTIONS: [(&str, bool); 14] = [
    ("server", true),
    ("clients", true),
    ("memory", true),
    ("persistence", true),
    ("flash", true),
    ("stats", true),
    ("replication", true),
    ("cpu", true),
    ("modules", true),
    ("commandstats", false),
    ("errorstats", true),
    ("latencystats", false),
    ("cluster", true),
    ("keyspace", true),
];

/// Maximum number of quarantined regions that are shown one by one.
const QUARANTINED_SHOWN: usize = 16;

pub fn reply(store: &Store, args: &[Bytes]) -> Reply {
    let asked: Vec<String> =
        args[1..].iter().map(|a| String::from_utf8_lossy(a).to_ascii_lowercase()).collect();
    let names = |names: &[&str]| asked.iter().any(|a| names.contains(&a.as_str()));
    let (every, default) = (names(&["all", "everything"]), asked.is_empty() || names(&["default"]));
    let mut text = String::new();
    for (section, is_default) in SECTIONS {
        if every || (default && is_default) || names(&[section]) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            write_section(store, section, &mut text);
        }
    }
    Reply::Verbatim("txt", text.into())
}

/// Returns a number of bytes as Redis writes it for people.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "K", "M", "G", "T", "P"];
    let power =
        (0..UNITS.len() - 1).find(|power| bytes >> (10 * (power + 1)) == 0).unwrap_or(UNITS.len() - 1);
    match power {
        0 => format!("{bytes}B"),
        _ => format!("{:.2}{}", bytes as f64 / f64::from(1 << 10).powi(power as i32), UNITS[power]),
    }
}

fn write_section(store: &Store, section: &str, text: &mut String) {
    let mut title = section.to_owned();
    title[..1].make_ascii_uppercase();
    let _ = write!(text, "# {title}\r\n");
    let mut field = |name: &str, value: &dyn std::fmt::Display| {
        let _ = write!(text, "{name}:{value}\r\n");
    };
    let metrics = &store.metrics;
    match section {
        "server" => {
            let uptime = metrics.started.elapsed().as_secs();
            field("redis_version", &crate::REDIS_VERSION);
            field("steelyard_version", &env!("CARGO_PKG_VERSION"));
            field("cluster_version", &store.membership.version.get());
            field("newest_version", &types::NEWEST_VERSION);
            field("redis_mode", &if store.config.cluster_enabled { "cluster" } else { "standalone" });
            field("os", &std::env::consts::OS);
            field("arch_bits", &64);
            field("process_id", &std::process::id());
            field("run_id", &super::cluster_commands::node_id(store, store.id));
            field("tcp_port", &store.config.this().client.port());
            field("server_time_usec", &crate::clock::unix_micros());
            field("uptime_in_seconds", &uptime);
            field("uptime_in_days", &(uptime / 86_400));
            field("clock_offset_ms", &store.wall.offset_ms().unwrap_or(0));
            field("clock_off", &u8::from(store.wall.is_off()));
            field("device_hanging", &u8::from(store.hanging.is_hanging()));
            field("device_log_wait_ms", &store.hanging.log_waited().as_millis());
            field("device_read_wait_ms", &store.hanging.read_waited().as_millis());
        }
        "clients" => {
            field("connected_clients", &store.clients.count());
            field("maxclients", &store.settings.read().maxclients);
            field("blocked_clients", &store.blocked.count());
            field("tracking_clients", &store.clients.pubsub.tracking.counts().0);
        }
        "memory" => {
            let resident = resident_bytes();
            let usage = allocator::usage();
            let used = usage.map_or(resident, |usage| usage.allocated);
            field("used_memory", &used);
            field("used_memory_human", &human(used));
            field("used_memory_rss", &resident);
            field("used_memory_rss_human", &human(resident));
            if let Some(usage) = usage {
                field("allocator_allocated", &usage.allocated);
                field("allocator_active", &usage.active);
                field("allocator_resident", &usage.resident);
                let parts = [
                    ("allocator_frag", usage.active, usage.allocated),
                    ("allocator_rss", usage.resident, usage.active),
                    ("rss_overhead", resident, usage.resident),
                    ("mem_fragmentation", resident, usage.allocated),
                ];
                for (name, more, less) in parts {
                    field(&format!("{name}_ratio"), &format!("{:.2}", more as f64 / less.max(1) as f64));
                    field(&format!("{name}_bytes"), &(more as i64 - less as i64));
                }
            }
            field("maxmemory", &store.budget.maxmemory());
            field("maxmemory_human", &human(store.budget.maxmemory()));
            field("maxmemory_policy", &"noeviction");
            field("number_of_cached_scripts", &store.scripts.count());
            let libraries = store.functions.known();
            field("number_of_functions", &libraries.functions_count());
            field("number_of_libraries", &libraries.count());
            field("mem_clients_normal", &store.client_memory.used());
            let rows = store.engine.rows().ram_use();
            field("mem_rows_dirty", &rows.dirty_bytes);
            field("mem_rows_clean", &rows.clean_bytes);
            field("mem_row_filter", &store.engine.rows().filter_use().bytes);
            field("mem_log_entries", &store.levels.entry_bytes());
            field("mem_unapplied_entries", &store.levels.handed_out_bytes());
        }
        "persistence" => {
            field("loading", &0);
            field("async_loading", &0);
            field("aof_enabled", &1);
            field("aof_last_write_status", &if store.disk.is_full() { "err" } else { "ok" });
            field("rdb_bgsave_in_progress", &u8::from(store.checkpoints.is_running()));
            field("rdb_last_save_time", &store.checkpoints.last());
            let unsynced = &store.unsynced;
            field("acknowledges_unsynced", &u8::from(unsynced.acknowledges_unsynced()));
            field("unclean_peers", &unsynced.unclean().len());
            let damaged = unsynced.damaged();
            field("damaged_peers", &damaged.len());
            for (region, Damaged { peer, first, .. }) in &damaged {
                field(&format!("damaged_region_{region}"), &format!("peer={peer},first_lost={first}"));
            }
            field("accepted_losses", &unsynced.accepted());
            field("incomplete_regions", &unsynced.incomplete().len());
            for region in unsynced.incomplete() {
                let (last, stamp_ms) = (region.last, region.stamp_ms.unwrap_or(0));
                field(
                    &format!("incomplete_region_{}", region.region),
                    &format!("index={last},time_ms={stamp_ms}"),
                );
            }
        }
        "flash" => flash::write_info(&flash::row(store), &mut field),
        "stats" => {
            let quarantined = store.quarantines.all();
            field("quarantined_regions", &quarantined.len());
            for (region, held) in quarantined.iter().take(QUARANTINED_SHOWN) {
                let cause = held.cause.name();
                let text =
                    format!("index={},cause={cause},what={},error={}", held.index, held.what, held.error);
                field(&format!("quarantined_region_{region}"), &text);
            }
            let (per_second, _) = metrics.recent();
            let totals = store.statistics.totals(metrics, store.snapshots_sent());
            let kilobytes = metrics.recent_bytes().map(|bytes| format!("{:.2}", bytes / 1024.0));
            field("total_connections_received", &totals.connections);
            field("total_commands_processed", &totals.commands);
            field("instantaneous_ops_per_sec", &(per_second as u64));
            field("total_net_input_bytes", &totals.bytes_in);
            field("total_net_output_bytes", &totals.bytes_out);
            field("instantaneous_input_kbps", &kilobytes[0]);
            field("instantaneous_output_kbps", &kilobytes[1]);
            field("total_reads_processed", &totals.reads);
            field("total_writes_processed", &totals.writes);
            field("rejected_connections", &totals.rejected_connections);
            field("evicted_clients", &totals.evicted_clients);
            field("keyspace_hits", &totals.keys.hits);
            field("keyspace_misses", &totals.keys.misses);
            field("expired_keys", &totals.keys.expired);
            // Rows that leave RAM are on flash. No search for expired keys ends because of its
            // time, and no process is forked.
            for constant in
                ["evicted_keys", "expired_time_cap_reached_count", "latest_fork_usec", "total_forks"]
            {
                field(constant, &0);
            }
            field("sync_full", &totals.snapshots_sent);
            let denials = &store.access.denials;
            field("acl_access_denied_auth", &denials.auth.load(Ordering::Relaxed));
            field("acl_access_denied_tls_cert", &denials.certificate.load(Ordering::Relaxed));
            field("acl_access_denied_cmd", &denials.command.load(Ordering::Relaxed));
            field("acl_access_denied_key", &denials.key.load(Ordering::Relaxed));
            field("acl_access_denied_channel", &denials.channel.load(Ordering::Relaxed));
            let (channels, patterns, shard_channels) = store.clients.pubsub.totals();
            field("pubsub_channels", &channels);
            field("pubsub_patterns", &patterns);
            field("pubsubshard_channels", &shard_channels);
            let (_, keys, items, prefixes) = store.clients.pubsub.tracking.counts();
            field("total_error_replies", &store.statistics.commands.error_count());
            field("tracking_total_keys", &keys);
            field("tracking_total_items", &items);
            field("tracking_total_prefixes", &prefixes);
            field("pubsub_clients_ended", &store.clients.pubsub.ended.load(Ordering::Relaxed));
            field("output_limit_ends", &metrics.output_limit_ends.get());
            field("pubsub_messages_dropped", &store.spread.dropped.load(Ordering::Relaxed));
            let rows = store.engine.rows().ram_use();
            field("rows_ram_hits", &rows.hits);
            field("rows_ram_misses", &rows.misses);
            field("entries_applied", &metrics.entries_applied.get());
            field("entries_applied_in_ram", &metrics.entries_applied_in_ram.get());
            field("io_threads_active", &store.loops.active());
            field("log_syncs", &metrics.log_syncs.get());
            field("checksums", &metrics.checksums.get());
            field("checks_equal", &metrics.checks_equal.get());
            field("checks_different", &metrics.checks_different.get());
        }
        "replication" => {
            let table = store.regions.table();
            let led = table.iter().filter(|region| region.leader() == Some(store.id)).count();
            field("role", &"master");
            field("connected_slaves", &0);
            field("store_id", &store.id);
            field("regions", &table.iter().filter(|region| region.is_local()).count());
            field("regions_led", &led);
        }
        "cpu" => {
            let seconds = |time: Duration| format!("{:.6}", time.as_secs_f64());
            let (user, system) = cpu::own_times();
            field("used_cpu_sys", &seconds(system));
            field("used_cpu_user", &seconds(user));
        }
        "commandstats" => statistics_commands::write_commands(store, &mut field),
        "errorstats" => statistics_commands::write_errors(store, &mut field),
        "latencystats" => statistics_commands::write_latencies(store, &mut field),
        "cluster" => field("cluster_enabled", &u8::from(store.config.cluster_enabled)),
        "keyspace" => {
            for (db, (keys, expires)) in store.engine.key_counts() {
                if keys > 0 {
                    let _ = write!(text, "db{db}:keys={keys},expires={expires},avg_ttl=0\r\n");
                }
            }
        }
        _ => {}
    }
}
