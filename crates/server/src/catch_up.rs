//! Tells, after a start, how far this store's peers are behind their leaders, until they have
//! caught up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::admin::{catch_up, CatchUpRow};

use crate::admin;
use crate::store::Store;

/// Interval at which the store looks at first.
const LOOK: Duration = Duration::from_millis(500);
/// Time after which the store looks only once per `TELL`, because a look visits all regions.
const OFTEN: Duration = Duration::from_secs(60);
/// Minimum interval between two messages about progress.
const TELL: Duration = Duration::from_secs(5);

/// Runs until the peers have caught up, and then ends.
pub async fn run(store: Arc<Store>) {
    let began = Instant::now();
    let mut teller = Teller::default();
    loop {
        tokio::time::sleep(if began.elapsed() < OFTEN { LOOK } else { TELL }).await;
        let rows = catch_up(&admin::rows::regions(&store));
        let own = rows.into_iter().find(|row| row.store == store.id).unwrap_or_default();
        let snapshots = store.snapshots().counts();
        match teller.look(own, began.elapsed()) {
            Tell::Nothing => {}
            Tell::Behind => tracing::info!(
                regions = own.regions,
                behind = own.behind,
                entries = own.entries,
                unknown = own.unknown,
                snapshots = snapshots.received,
                snapshot_bytes = snapshots.received_bytes,
                "catching up with the leaders"
            ),
            Tell::CaughtUp => {
                tracing::info!(
                    regions = own.regions,
                    snapshots = snapshots.received,
                    snapshot_bytes = snapshots.received_bytes,
                    seconds = began.elapsed().as_secs(),
                    "the peers of this store have caught up with their leaders"
                );
                return;
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tell {
    Nothing,
    Behind,
    CaughtUp,
}

/// Decides when progress is worth a message.
#[derive(Default)]
struct Teller {
    /// The last row that was told, and when.
    told: Option<(CatchUpRow, Duration)>,
}

impl Teller {
    /// Decides about a message. The row was read at this time after the start.
    fn look(&mut self, row: CatchUpRow, at: Duration) -> Tell {
        if row.has_caught_up() {
            return Tell::CaughtUp;
        }
        let is_due = self.told.is_none_or(|(told, then)| told != row && at >= then + TELL);
        if !is_due {
            return Tell::Nothing;
        }
        self.told = Some((row, at));
        Tell::Behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_at_intervals_while_it_changes() {
        let mut teller = Teller::default();
        let row = |entries| CatchUpRow { store: 1, regions: 3, behind: 2, entries, unknown: 0 };
        let mut look = |row, seconds| teller.look(row, Duration::from_secs(seconds));
        assert_eq!(look(row(90), 1), Tell::Behind);
        assert_eq!(look(row(80), 3), Tell::Nothing);
        assert_eq!(look(row(70), 6), Tell::Behind);
        assert_eq!(look(row(70), 60), Tell::Nothing);
        assert_eq!(look(row(60), 61), Tell::Behind);
        assert_eq!(look(CatchUpRow { behind: 0, ..row(0) }, 62), Tell::CaughtUp);
    }
}
