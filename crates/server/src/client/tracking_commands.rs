//! `CLIENT TRACKING`, `TRACKINGINFO`, `CACHING` and `GETREDIR`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use node::session::Caching;
use resp::Reply;
use types::{RegionId, StoreId};

use super::Connected;
use crate::pubsub::mailbox::Subscriber;
use crate::pubsub::tracking::Mode;
use crate::store::Store;

/// Interval at which the regions are looked at, besides their known changes.
const REGIONS_LOOK: Duration = Duration::from_secs(1);

fn is(arg: &Bytes, word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// The options of `CLIENT TRACKING ON`.
#[derive(Default)]
struct Options {
    mode: Mode,
    prefixes: Vec<Bytes>,
    target: Option<Arc<Subscriber>>,
}

fn parse(store: &Store, mut args: &[Bytes]) -> Result<Options, Reply> {
    let mut options = Options::default();
    while let [word, rest @ ..] = args {
        args = rest;
        match rest {
            [id, rest @ ..] if is(word, "redirect") => {
                if options.mode.redirect.is_some() {
                    return Err(Reply::error("ERR A client can only redirect to a single other client"));
                }
                let Some(id) = resp::parse_integer(id) else {
                    return Err(Reply::error("ERR value is not an integer or out of range"));
                };
                let target = store.clients.all().into_iter().find(|entry| i64::try_from(entry.id) == Ok(id));
                let Some(target) = target else {
                    return Err(Reply::error("ERR The client ID you want redirect to does not exist"));
                };
                options.mode.redirect = Some(target.id);
                options.target = Some(target.subscriber.clone());
                args = rest;
            }
            [prefix, rest @ ..] if is(word, "prefix") => {
                options.prefixes.push(resp::compact(prefix));
                args = rest;
            }
            _ if is(word, "bcast") => options.mode.broadcasts = true,
            _ if is(word, "optin") => options.mode.opt_in = true,
            _ if is(word, "optout") => options.mode.opt_out = true,
            _ if is(word, "noloop") => options.mode.no_loop = true,
            _ => return Err(Reply::error("ERR syntax error")),
        }
    }
    Ok(options)
}

pub fn tracking(store: &Store, client: &mut Connected<'_>, args: &[Bytes]) -> Reply {
    let options = match parse(store, &args[1..]) {
        Ok(options) => options,
        Err(error) => return error,
    };
    let tracking = &store.clients.pubsub.tracking;
    if is(&args[0], "off") {
        tracking.end(client.entry.id);
        client.entry.subscriber.set_tracking(None, false);
        client.context.caching = Caching::Off;
        return Reply::OK;
    }
    if !is(&args[0], "on") {
        return Reply::error("ERR syntax error");
    }
    let before = tracking.mode_of(client.entry.id).map(|(mode, _)| mode);
    let Options { mut mode, prefixes, target } = options;
    if let Some(error) = refusal(&mode, &prefixes, before.as_ref()) {
        return Reply::error(error);
    }
    if mode.broadcasts {
        mode.prefixes = before.map(|mode| mode.prefixes).unwrap_or_default();
        if prefixes.is_empty() {
            mode.prefixes.insert(Bytes::new());
        }
        mode.prefixes.extend(prefixes);
    }
    client.context.caching = match (&mode, client.context.caching) {
        (Mode { broadcasts: true, .. }, _) => Caching::Off,
        // The command does not change what the next command is to do.
        (Mode { opt_in: true, .. }, Caching::Next { yes: true }) => Caching::Next { yes: true },
        (Mode { opt_out: true, .. }, Caching::Next { yes: false }) => Caching::Next { yes: false },
        (Mode { opt_in: true, .. }, _) => Caching::OptIn,
        (Mode { opt_out: true, .. }, _) => Caching::OptOut,
        _ => Caching::All,
    };
    client.entry.subscriber.set_tracking(Some(mode.redirect.unwrap_or(0)), mode.broadcasts);
    tracking.begin(&client.entry.subscriber, mode, target);
    Reply::OK
}

fn refusal(mode: &Mode, prefixes: &[Bytes], before: Option<&Mode>) -> Option<String> {
    if !mode.broadcasts && !prefixes.is_empty() {
        return Some("ERR PREFIX option requires BCAST mode to be enabled".into());
    }
    if before.is_some_and(|before| before.broadcasts != mode.broadcasts) {
        return Some(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
             re-enabling it with a different mode."
                .into(),
        );
    }
    if mode.broadcasts && (mode.opt_in || mode.opt_out) {
        return Some("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
    }
    if mode.opt_in && mode.opt_out {
        return Some("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
    }
    let switches = |before: &Mode| mode.opt_in && before.opt_out || mode.opt_out && before.opt_in;
    if before.is_some_and(switches) {
        return Some(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
             re-enabling it with a different mode."
                .into(),
        );
    }
    let none = BTreeSet::new();
    let known = before.map_or(&none, |before| &before.prefixes);
    let overlap = |a: &Bytes, b: &Bytes| a.starts_with(b) || b.starts_with(a);
    for (at, prefix) in prefixes.iter().enumerate() {
        let (with, other) = match known.iter().find(|known| overlap(prefix, known)) {
            Some(known) => ("an existing", known),
            None => match prefixes[at + 1..].iter().find(|other| overlap(prefix, other)) {
                Some(other) => ("another provided", other),
                None => continue,
            },
        };
        let (prefix, other) = (String::from_utf8_lossy(prefix), String::from_utf8_lossy(other));
        return Some(format!(
            "ERR Prefix '{prefix}' overlaps with {with} prefix '{other}'. Prefixes for a single client must not \
             overlap."
        ));
    }
    None
}

pub fn caching(store: &Store, client: &mut Connected<'_>, word: &Bytes) -> Reply {
    let Some((mode, _)) = store.clients.pubsub.tracking.mode_of(client.entry.id) else {
        return Reply::error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
             mode enabled",
        );
    };
    let yes = match (is(word, "yes"), is(word, "no")) {
        (true, _) if !mode.opt_in => {
            return Reply::error(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            )
        }
        (_, true) if !mode.opt_out => {
            return Reply::error(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            )
        }
        (false, false) => return Reply::error("ERR syntax error"),
        (yes, _) => yes,
    };
    client.context.caching = Caching::Next { yes };
    Reply::OK
}

pub fn redirection(store: &Store, client: &Connected<'_>) -> Reply {
    let mode = store.clients.pubsub.tracking.mode_of(client.entry.id);
    Reply::Int(mode.map_or(-1, |(mode, _)| mode.redirect.map_or(0, |id| id as i64)))
}

pub fn info(store: &Store, client: &Connected<'_>) -> Reply {
    let text = |text: &'static str| Reply::bulk(text.as_bytes());
    let mode = store.clients.pubsub.tracking.mode_of(client.entry.id);
    let flags: Vec<Reply> = match &mode {
        None => vec![text("off")],
        Some((mode, is_broken)) => {
            let next = |yes| client.context.caching == Caching::Next { yes };
            let flags = [
                (true, "on"),
                (mode.broadcasts, "bcast"),
                (mode.opt_in, "optin"),
                (mode.opt_in && next(true), "caching-yes"),
                (mode.opt_out, "optout"),
                (mode.opt_out && next(false), "caching-no"),
                (mode.no_loop, "noloop"),
                (*is_broken, "broken_redirect"),
            ];
            flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| text(flag)).collect()
        }
    };
    let prefixes = mode.into_iter().flat_map(|(mode, _)| mode.prefixes).map(Reply::Bulk).collect();
    Reply::Map(vec![
        (text("flags"), Reply::Set(flags)),
        (text("redirect"), redirection(store, client)),
        (text("prefixes"), Reply::Array(prefixes)),
    ])
}

/// Tells clients that cache keys of regions whose leader, or whose copy here, has changed: this
/// store may have missed changes, or may no longer learn of them in time.
pub async fn keep_tracked(store: Arc<Store>) {
    let mut before = BTreeMap::new();
    loop {
        let changed = store.regions.leader_changes.notified();
        let regions = store.regions.all();
        let now: BTreeMap<RegionId, (Option<StoreId>, bool)> =
            regions.iter().map(|region| (region.id(), (region.leader(), region.is_local()))).collect();
        let tracking = &store.clients.pubsub.tracking;
        if tracking.is_active() && now != before {
            // A new region is part of a former one.
            let is_changed = |id: RegionId| now.get(&id) != before.get(&id);
            tracking.lost(|slot| store.regions.of_slot(slot).is_none_or(|region| is_changed(region.id())));
        }
        before = now;
        let _ = tokio::time::timeout(REGIONS_LOOK, changed).await;
    }
}
