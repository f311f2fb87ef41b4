//! Commands of Redis that have no place here. Each is refused with the reason, and with what to do
//! instead if there is something.

use bytes::Bytes;
use resp::Reply;

use crate::table::{leaf, lookup};

/// The refused commands, each with the reason.
const REFUSED: [(&str, &str); 25] = [
    ("swapdb", "the rows of each key name its database, so a swap would rewrite all keys, in every region at one moment: MOVE moves keys between databases"),
    ("replicaof", REPLICAS),
    ("slaveof", REPLICAS),
    ("failover", LEADERS),
    ("sync", PROTOCOL),
    ("psync", PROTOCOL),
    ("replconf", PROTOCOL),
    ("module|load", MODULES),
    ("module|loadex", MODULES),
    ("module|unload", MODULES),
    ("cluster|meet", "a store joins a cluster with 'steelyard serve --join'"),
    ("cluster|forget", STORES),
    ("cluster|reset", STORES),
    ("cluster|replicate", REPLICAS),
    ("cluster|failover", LEADERS),
    ("cluster|count-failure-reports", "stores do not vote on failures: see 'steelyard ctl stores'"),
    ("cluster|addslots", SLOTS),
    ("cluster|addslotsrange", SLOTS),
    ("cluster|delslots", SLOTS),
    ("cluster|delslotsrange", SLOTS),
    ("cluster|setslot", SLOTS),
    ("cluster|flushslots", SLOTS),
    ("cluster|bumpepoch", STATE),
    ("cluster|set-config-epoch", STATE),
    ("cluster|saveconfig", STATE),
];

const REPLICAS: &str =
    "placement chooses the stores of each region: see 'steelyard ctl regions' and 'ctl move-peer'";
const LEADERS: &str =
    "placement chooses the leader of each region: use 'steelyard ctl move-leader' or 'ctl store drain'";
const PROTOCOL: &str = "stores replicate by their own protocol";
const MODULES: &str = "there are no modules";
const STORES: &str = "use 'steelyard ctl store drain' and 'ctl store remove'";
const SLOTS: &str = "regions have all slots: use 'steelyard ctl split', 'ctl merge' and 'ctl move-peer'";
const STATE: &str = "the meta region keeps the state of the cluster";

/// Returns the reason for which a command is refused, by its name.
pub fn reason(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(refused, _)| *refused == name).map(|(_, reason)| *reason)
}

/// Refuses a command.
pub(crate) fn reply(args: &[Bytes]) -> Reply {
    let Some(spec) = lookup(&args[0]).map(|spec| leaf(spec, args)) else {
        return crate::unknown_command(args);
    };
    let name = spec.name.replace('|', " ").to_uppercase();
    Reply::error(format!("ERR {name} is not supported: {}", reason(spec.name).unwrap_or(PROTOCOL)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::commands;
    use crate::Handler;

    #[test]
    fn every_refused_command_has_a_reason_and_no_other() {
        let all = commands().iter().flat_map(|spec| std::iter::once(*spec).chain(spec.subcommands.iter()));
        for spec in all {
            let is_refused = matches!(spec.handler, Handler::Table(handler) if std::ptr::fn_addr_eq(handler, reply as crate::TableFn));
            assert_eq!(is_refused, reason(spec.name).is_some(), "{}", spec.name);
        }
    }
}
