//! The implementation of the admin endpoint's operations in a store. Larger operations have a
//! module of their own.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cluster::admin::{
    AcceptLossRequest, AcceptedRow, ConfigQuery, ConfigRequest, ConfigRow, DeviceRequest, ExplainQuery,
    ExplainRow, ExplainStoreQuery, ExplainStoreRow, FlashRow, LeaderRequest, LeaderRow, Operation,
    OperatorRow, OperatorsQuery, PolicyQuery, PolicyRequest, PolicyRow, ProbeRequest, ProbeRow,
    RegionRequest, RegionRow, RegionsQuery, StatusQuery, StoreRequest, StoreRow, StoreStatus, StoresQuery,
};
use cluster::AuditedChange;
use types::{RegionId, StoreId};

use super::ask::{ask_for, ask_recorded, ask_store, read, Ask};
use super::{quarantine, rows};
use crate::admin_error::{refuse, AdminError};
use crate::capability::{self, NotProbed, Probe};
use crate::store::Store;
use crate::unsynced::{NotTaken, Taken};

/// Maximum time for which a requested probe waits while other stores of the host measure their
/// devices.
const TURN_MAX: Duration = Duration::from_secs(60);

/// The description of an operation for the audit log; `None` if it changes nothing.
pub type Change<'a> = Option<&'a AuditedChange>;

/// An operation and its implementation in a store.
pub trait Served: Operation {
    /// True if the store that is asked makes the change itself, and not the meta region's leader
    /// with one command. Then the change is recorded afterwards.
    const IS_OWN: bool = true;

    /// Carries out the operation. `of` is the region or the store in its path. `change` goes into
    /// the audit log with the command, unless [`IS_OWN`](Served::IS_OWN).
    fn serve(
        self,
        of: Self::Of,
        store: &Arc<Store>,
        change: Change<'_>,
    ) -> impl Future<Output = Result<Self::Reply, AdminError>> + Send;
}

impl Served for StoresQuery {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<Vec<StoreRow>, AdminError> {
        Ok(rows::stores(store))
    }
}

impl Served for RegionsQuery {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<Vec<RegionRow>, AdminError> {
        Ok(rows::regions(store))
    }
}

impl Served for PolicyQuery {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<PolicyRow, AdminError> {
        Ok(PolicyRow { policy: ask_for(store, Ask::Policy).await? })
    }
}

impl Served for PolicyRequest {
    const IS_OWN: bool = false;

    async fn serve(
        self,
        (): (),
        store: &Arc<Store>,
        change: Change<'_>,
    ) -> Result<PolicyRequest, AdminError> {
        ask_recorded(store, change, Ask::SetPolicy { name: self.policy.clone() }).await?;
        Ok(self)
    }
}

impl Served for ConfigQuery {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<Vec<ConfigRow>, AdminError> {
        ask_for(store, Ask::Config).await
    }
}

impl Served for ConfigRequest {
    const IS_OWN: bool = false;

    async fn serve(
        self,
        (): (),
        store: &Arc<Store>,
        change: Change<'_>,
    ) -> Result<ConfigRequest, AdminError> {
        let question = Ask::SetConfig { name: self.name.clone(), value: self.value.clone() };
        ask_recorded(store, change, question).await?;
        Ok(self)
    }
}

impl Served for LeaderRequest {
    const IS_OWN: bool = false;

    async fn serve(
        self,
        region: RegionId,
        store: &Arc<Store>,
        change: Change<'_>,
    ) -> Result<LeaderRow, AdminError> {
        ask_recorded(store, change, Ask::MoveLeader { region, to: self.store }).await?;
        Ok(LeaderRow { region, store: self.store })
    }
}

impl Served for RegionRequest {
    const IS_OWN: bool = false;

    async fn serve(
        self,
        region: RegionId,
        store: &Arc<Store>,
        change: Change<'_>,
    ) -> Result<RegionRequest, AdminError> {
        ask_recorded(store, change, Ask::ChangeRegion { region, change: self.clone() }).await?;
        Ok(self)
    }
}

impl Served for StoreRequest {
    const IS_OWN: bool = false;

    async fn serve(
        self,
        of: StoreId,
        store: &Arc<Store>,
        change: Change<'_>,
    ) -> Result<StoreRequest, AdminError> {
        ask_recorded(store, change, Ask::ChangeStore { store: of, change: self.clone() }).await?;
        Ok(self)
    }
}

impl Served for ExplainQuery {
    async fn serve(
        self,
        region: RegionId,
        store: &Arc<Store>,
        _: Change<'_>,
    ) -> Result<ExplainRow, AdminError> {
        Ok(ExplainRow { explanation: ask_for(store, Ask::Explain { region }).await?, region })
    }
}

impl Served for ExplainStoreQuery {
    async fn serve(
        self,
        of: StoreId,
        store: &Arc<Store>,
        _: Change<'_>,
    ) -> Result<ExplainStoreRow, AdminError> {
        let mut explanation: String = ask_for(store, Ask::ExplainStore { store: of }).await?;
        // The store itself knows its options. Its program may be older than this question.
        let told = ask_store(store, of, Ask::Flash).await.and_then(read::<FlashRow>);
        explanation = explanation.trim_end().to_owned() + "\n\n";
        match told {
            Ok(row) => explanation += &row.tuning,
            Err(_) => explanation += "the store does not tell its options now\n",
        }
        Ok(ExplainStoreRow { explanation, store: of })
    }
}

impl Served for OperatorsQuery {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<Vec<OperatorRow>, AdminError> {
        ask_for(store, Ask::Operators { history: self.history }).await
    }
}

impl Served for StatusQuery {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<StoreStatus, AdminError> {
        let policy = ask_for(store, Ask::Policy).await?;
        let settings = store.settings.read().all();
        let fsync = settings.into_iter().find(|(name, _)| *name == "appendfsync");
        Ok(StoreStatus {
            store: store.id,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster_version: store.membership.version.get(),
            pid: std::process::id(),
            uptime_s: store.metrics.started.elapsed().as_secs(),
            cluster_enabled: store.config.cluster_enabled,
            policy,
            fsync: fsync.map(|(_, value)| value).unwrap_or_default(),
            stages: store.metrics.stages(),
            counters: store.metrics.counters(),
        })
    }
}

impl Served for DeviceRequest {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<DeviceRequest, AdminError> {
        let Some(path) = &store.config.device_control else {
            return Err(refuse(409, "this store's device is not emulated"));
        };
        let control = device::Control::open(path).map_err(|e| refuse(500, e.to_string()))?;
        control.set_slow(self.slow).map_err(|e| refuse(400, e.to_string()))?;
        Ok(self)
    }
}

impl Served for ProbeRequest {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<ProbeRow, AdminError> {
        let (load_ops_per_s, _) = store.metrics.recent();
        let probed =
            capability::probe(&store.measurer(), Probe::Full, Some(TURN_MAX)).await.map_err(|error| {
                let status = match error {
                    NotProbed::UnderWay | NotProbed::NoTurn | NotProbed::NoRoom { .. } => 409,
                    NotProbed::Failed(_) | NotProbed::NoThread => 500,
                };
                refuse(status, error.to_string())
            })?;
        let measured = probed.measured;
        let counts = store.capability.counts_for(&measured);
        let method = serde_json::to_value(measured.method).expect("plain data");
        Ok(ProbeRow {
            store: store.id,
            method: method.as_str().unwrap_or_default().to_owned(),
            io_bytes_per_s: measured.write_bytes_per_s,
            sync_us: measured.sync_latency.as_secs_f64() * 1e6,
            read_us: measured.read_latency.as_secs_f64() * 1e6,
            capability_bytes_per_s: counts.kv_bytes_per_s,
            ops_per_s: counts.ops_per_s,
            told: store.capability.is_told(),
            kept: probed.is_reference,
            load_ops_per_s,
        })
    }
}

impl Served for AcceptLossRequest {
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<Vec<AcceptedRow>, AdminError> {
        let store = store.clone();
        tokio::task::spawn_blocking(move || accept_loss(&store, self.region))
            .await
            .unwrap_or_else(|error| Err(refuse(500, error.to_string())))
    }
}

fn accept_loss(store: &Store, region: Option<RegionId>) -> Result<Vec<AcceptedRow>, AdminError> {
    let damaged = region.filter(|&region| quarantine::is_damaged(store, region));
    if let Some(region) = damaged {
        return quarantine::accept_damage(store, region).map(|row| vec![row]);
    }
    if region.is_some_and(|region| store.cluster.has_live_leader(region)) {
        return Err(refuse(409, "the region has a leader, which has this store's peer replaced"));
    }
    let wanted = |of: RegionId| match region {
        Some(region) => of == region,
        None => !store.cluster.has_live_leader(of),
    };
    let taken =
        store.unsynced.accept(wanted, &store.worker, store.wall.millis()).map_err(|error| match error {
            NotTaken::Nothing => refuse(409, "no such peer of this store may have forgotten writes"),
            NotTaken::RestartFirst => refuse(
                409,
                "the damage to the log was found while the store runs: restart the store, and then accept the loss",
            ),
            NotTaken::Unwritten(error) => refuse(500, format!("the order cannot be recorded: {error}")),
        })?;
    let row = |Taken { region, peer, last }: Taken| AcceptedRow { store: store.id, region, peer, last };
    Ok(taken.into_iter().map(row).collect())
}
