//! What stores tell each other, and what the meta region's leader makes of it.

use std::collections::BTreeMap;

use cluster::{LeadReport, MetaCommand, Now, PeerProgress, StoreHeartbeat, StoreRecord};
use placement::{Capability, Operator, PlanLimits, Policy};
use replica::Input;
use types::{StoreId, META_REGION};

use super::{Submit, ToWorker};
use crate::clock::MILLISECOND;
use crate::world::{Packet, Work, World};

const PERIOD: u64 = 400 * MILLISECOND;

impl World {
    pub(super) fn heartbeat(&mut self, id: StoreId) {
        self.schedule_work(id, PERIOD, Work::Heartbeat);
        let others: Vec<StoreId> = self.stores.keys().copied().collect();
        let Some(process) = self.process(id) else { return };
        process.seq += 1;
        let report = StoreHeartbeat {
            store: id,
            incarnation: process.incarnation,
            seq: process.seq,
            capability: capability(id),
            leads: process.leads(id),
            ..StoreHeartbeat::default()
        };
        let bytes = report.encode();
        for to in others {
            self.send(id, to, Packet::Heartbeat(bytes.clone()));
        }
        self.plan_round(id);
    }

    pub(super) fn hear(&mut self, id: StoreId, bytes: &[u8]) {
        let boot = self.boot(id);
        let heartbeat = match StoreHeartbeat::decode(bytes) {
            Ok(heartbeat) => heartbeat,
            Err(error) => return self.violate("heartbeat", error.to_string()),
        };
        let from = heartbeat.store;
        let Some(process) = self.process(id) else { return };
        if !process.ledger.hear(heartbeat.clone(), boot) {
            return;
        }
        for lead in &heartbeat.leads {
            if let Some(shared) = process.regions.get_mut(&lead.region) {
                if lead.term > shared.term || (lead.term == shared.term && shared.leader.is_none()) {
                    (shared.term, shared.leader) = (lead.term, Some(from));
                }
            }
        }
        if from != id {
            for lead in heartbeat.leads {
                self.input(id, Input::TruncateHint { region: lead.region, index: lead.truncate_to });
            }
        }
    }

    /// The meta region's leader begins the cluster's state, then plans.
    fn plan_round(&mut self, id: StoreId) {
        let (boot, wall) = (self.boot(id), self.stores[&id].clock.wall_ms(self.now));
        let layout = self.layout.clone();
        let stores: Vec<StoreId> = self.stores.keys().copied().collect();
        let policy = if self.seed % 2 == 0 { Policy::Even } else { Policy::LeaderOnly };
        let Some(process) = self.process(id) else { return };
        if process.regions[&META_REGION].leader != Some(id) {
            return process.driver.forget();
        }
        if !process.meta.is_bootstrapped() {
            let command = MetaCommand::Bootstrap {
                cluster_id: 1,
                stores: stores.into_iter().map(record).collect(),
                regions: layout,
                policy,
                config: BTreeMap::new(),
                semantics: storage::SEMANTICS_VERSION,
            };
            let submit = Submit::Meta(command.encode());
            return self.tell(id, ToWorker::Submit { region: META_REGION, submit });
        }
        let now = Now { boot, unix_ms: wall };
        let operators = process.driver.step(&process.meta, &process.ledger, &PlanLimits::default(), now);
        for operator in operators {
            self.tally.operators += 1;
            self.say(&format!("operator: {operator}"));
            if let Operator::TransferLeader { region, from, to, .. } = operator {
                self.send(id, from, Packet::Transfer { region, to });
            }
        }
    }
}

impl super::Process {
    fn leads(&self, id: StoreId) -> Vec<LeadReport> {
        let mut leads = Vec::new();
        for (&region, shared) in self.regions.iter().filter(|(_, shared)| shared.leader == Some(id)) {
            let Some(status) = self.worker.status(region, 0) else { continue };
            if status.leader != Some(id) {
                continue;
            }
            let peers = status.matched.iter().map(|(&store, &matched)| PeerProgress { store, matched });
            leads.push(LeadReport {
                region,
                epoch: shared.descriptor.epoch,
                term: status.term,
                commit: status.commit,
                applied: status.applied,
                truncate_to: status.min_matched().unwrap_or(0),
                peers: peers.collect(),
                ..LeadReport::default()
            });
        }
        leads
    }
}

fn capability(store: StoreId) -> Capability {
    Capability { kv_bytes_per_s: 1e6 * (1 + store % 3) as f64, ops_per_s: 1e4 }
}

fn record(id: StoreId) -> StoreRecord {
    StoreRecord {
        id,
        client: format!("store-{id}:6379"),
        peer: format!("store-{id}:7379"),
        admin: format!("store-{id}:8379"),
        forward: None,
        device: "simulated".into(),
        capability: capability(id),
        labels: BTreeMap::new(),
    }
}
