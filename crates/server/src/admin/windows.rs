//! `ctl regions --window`: the proposals under way in each region, as its leader sees them.

use std::sync::Arc;

use cluster::admin::{WindowRow, WindowsQuery};
use futures::future::join_all;
use replica::RegionStatus;
use types::{RegionId, StoreId};

use super::ask::{ask_store, read, Ask};
use super::operations::{Change, Served};
use crate::admin_error::AdminError;
use crate::store::Store;

impl Served for WindowsQuery {
    /// Asks every store that is up. A store that does not answer, or whose program does not know
    /// the question, is left out.
    async fn serve(self, (): (), store: &Arc<Store>, _: Change<'_>) -> Result<Vec<WindowRow>, AdminError> {
        let members = store.membership.members().list.clone();
        let up = members.iter().filter(|member| store.cluster.is_heard(member.id));
        let asked = up.map(|member| async {
            let answer = ask_store(store, member.id, Ask::Windows).await.ok()?;
            read::<Vec<WindowRow>>(answer).ok()
        });
        let mut rows: Vec<WindowRow> = join_all(asked).await.into_iter().flatten().flatten().collect();
        rows.sort_by_key(|row| row.region);
        Ok(rows)
    }
}

/// Returns the windows of the regions that this store leads, as of the last tenth of a second.
pub fn led(store: &Store) -> Vec<WindowRow> {
    let window = store.config.proposal_window;
    let regions = store.regions.all();
    let led = regions.iter().filter_map(|region| row(store.id, region.id(), &region.status()?, window));
    led.collect()
}

fn row(this: StoreId, region: RegionId, status: &RegionStatus, window: u64) -> Option<WindowRow> {
    let matched = |store: StoreId| status.peers.get(&store).map_or(0, |progress| progress.matched);
    let others = status.peers.keys().filter(|store| **store != this);
    (status.leader == Some(this)).then(|| WindowRow {
        region,
        leader: this,
        commit: status.commit,
        promised: others.map(|store| matched(*store)).max().unwrap_or(0),
        written: matched(this),
        next: status.last + 1,
        window,
    })
}

#[cfg(test)]
mod tests {
    use node::Leadership;

    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn a_leader_tells_the_four_marks_of_its_regions() {
        let fixture = Fixture::new();
        let store = &fixture.store;
        let region = store.regions.get(1).unwrap();
        assert_eq!(led(store), []);
        store.regions.lead(1, Leadership { term: 3, leader: Some(store.id) });
        let mut status = fixture.status(&region);
        let progress = |matched| replica::PeerProgress { matched, is_active: true, needs_snapshot: false };
        (status.commit, status.last) = (70, 90);
        status.peers =
            [(store.id, progress(85)), (store.id + 1, progress(75)), (store.id + 2, progress(70))].into();
        store.regions.publish([1].into_iter(), |_| Some(status.clone()));
        let (id, window) = (store.id, store.config.proposal_window);
        let row =
            WindowRow { region: 1, leader: id, commit: 70, promised: 75, written: 85, next: 91, window };
        assert_eq!(row.in_flight(), 20);
        assert_eq!(led(store), [row]);
    }
}
