//! Executes a planned stop after SIGTERM, SIGINT, `SHUTDOWN` or the end of a drain. `node::stop`
//! makes the decisions.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use node::stop::{PlannedStop, StopPhase, StopTimes, StopView};
use replica::Input;
use tokio::task::JoinSet;

use crate::clock;
use crate::config::{Config, Member, ELECTION_TICKS};
use crate::led::led;
use crate::loops::ToLoop;
use crate::store::Store;

/// Time limit for the transfer of all regions together.
const HAND_OVER: Duration = Duration::from_secs(5);
/// Time for other stores to receive the news that this store is stopping.
const TOLD: Duration = Duration::from_millis(50);
/// Time without a command from another store after which the other stores are assumed to know the
/// new leaders. It is longer than a heartbeat's period.
const QUIET: Duration = Duration::from_millis(300);
const REDIRECTING: Duration = Duration::from_secs(2);
/// Maximum time in addition to `request-timeout` for the answer to a passed-on command that arrived
/// late.
const ANSWERS: Duration = Duration::from_secs(2);
/// Interval between two steps of a stop.
const POLL: Duration = Duration::from_millis(10);

fn times(config: &Config) -> StopTimes {
    let nanos = |time: Duration| time.as_nanos() as u64;
    // A transfer is abandoned after an election timeout.
    let retry = nanos(config.raft_tick) * u64::from(ELECTION_TICKS) * 5 / 4;
    StopTimes {
        told_nanos: nanos(TOLD),
        hand_over_nanos: nanos(HAND_OVER),
        retry_nanos: retry,
        quiet_nanos: nanos(QUIET),
        redirect_nanos: nanos(REDIRECTING),
        close_nanos: nanos(config.request_timeout + ANSWERS),
    }
}

/// Transfers this store's leaders, continues to serve until other stores know the new leaders, and
/// closes each client's connection once its requests are answered. `listening` accepts clients
/// until the closing begins. The waiting ends when `hurried` resolves.
pub async fn stop(store: &Arc<Store>, mut listening: JoinSet<()>, hurried: impl Future<Output = ()>) {
    store.ends.leave();
    let _ = store.worker.raft(Input::StopLeading);
    store.cluster.report_soon.notify_one();
    let mut stop = PlannedStop::new(times(&store.config), clock::boot_nanos());
    let mut phase = StopPhase::Telling;
    let mut hurried = std::pin::pin!(hurried);
    let mut is_hurried = false;
    while phase != StopPhase::Done {
        let step = stop.step(&view(store), clock::boot_nanos());
        for (region, to) in step.transfers {
            tracing::info!(region, to, "stopping: the region's leadership is transferred");
            let _ = store.worker.raft(Input::TransferLeader { region, to });
        }
        if step.phase != phase {
            tracing::debug!(phase = ?step.phase, "stopping");
            if phase < StopPhase::Redirecting && step.phase >= StopPhase::Redirecting {
                tell_what_stays(store, &stop, is_hurried);
            }
        }
        if step.phase >= StopPhase::Closing && !store.ends.is_closing() {
            close(store, &mut listening).await;
        }
        phase = step.phase;
        if phase != StopPhase::Done {
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                () = &mut hurried, if !is_hurried => {
                    is_hurried = true;
                    stop.hurry();
                }
            }
        }
    }
    tell_what_is_unanswered(store, &stop);
}

fn view(store: &Store) -> StopView {
    let members = store.membership.members();
    let is_other = |member: &Member| member.id != store.id && store.cluster.takes_on(member.id);
    StopView {
        led: led(store),
        has_others: members.list.iter().any(is_other),
        passed: store.ends.answering.passed(),
        answering: store.ends.answering.now(),
        connections: store.clients.unclosed(),
    }
}

/// Accepts the clients that have already connected, and then no more. Makes the loops close
/// connections.
async fn close(store: &Store, listening: &mut JoinSet<()>) {
    store.ends.close();
    while listening.join_next().await.is_some() {}
    store.loops.all().iter().for_each(|serving| drop(serving.send(ToLoop::Close)));
}

fn tell_what_stays(store: &Store, stop: &PlannedStop, is_hurried: bool) {
    let regions = &stop.left().regions;
    let is_lone = store.membership.members().list.len() == 1;
    if regions.is_empty() || is_lone {
        return;
    }
    let why = match is_hurried {
        true => "the stop was hurried",
        false => "no up-to-date voter on another store took over in time",
    };
    tracing::warn!(
        ?regions,
        "leaders not handed over, {why}: these regions elect a leader once the store is gone"
    );
}

fn tell_what_is_unanswered(store: &Store, stop: &PlannedStop) {
    let left = stop.left();
    if left.connections > 0 || left.answering > 0 {
        let (connections, requests_of_stores) = (left.connections, left.answering);
        tracing::warn!(
            connections,
            requests_of_stores,
            "the store stops before these were answered: the outcome of their requests is unknown to the clients"
        );
    }
    let late = store.clients.late();
    if late > 0 {
        tracing::info!(
            late,
            "clients sent requests while their idle connections were closed; none was executed"
        );
    }
}
