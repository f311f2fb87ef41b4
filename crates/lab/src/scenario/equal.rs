//! Equal stores that measure themselves: does the cluster treat them as equal?
//!
//! The same cluster is started many times, because a measurement may go wrong once in ten starts.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::moves::{Move, Span};
use super::verdict::{verdicts, Verdict};
use super::{Look, Machine};
use crate::measure::median;
use crate::page::Page;
use client::table::{bytes, count, Align, Table};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    pub stores: usize,
    pub regions: usize,
    pub replicas: usize,
    /// The emulated devices of all stores. `None` for the disk under them.
    pub device: Option<String>,
    pub starts: usize,
    /// Seconds after the start for placing, then seconds under load, then seconds at rest.
    pub settle_s: f64,
    pub load_s: f64,
    pub calm_s: f64,
    pub machine: Machine,
}

/// The regions of a store, and the capability that the cluster attributes to it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    pub store: u64,
    /// Number of user regions that it leads, and number of those that it holds a peer of.
    pub leads: usize,
    pub holds: usize,
    pub capability_bytes_per_s: f64,
    /// The uncertainty of the capability as a factor. 0 if unknown.
    pub spread: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub policy: String,
    /// The shares when `settle_s` was over, and at the end.
    pub settled: Vec<Share>,
    pub ended: Vec<Share>,
    pub load: Span,
    pub end_s: f64,
    pub operations_per_s: f64,
    pub moves: Vec<Move>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EqualStores {
    pub version: u32,
    pub setup: Setup,
    pub starts: Vec<Start>,
}

pub const VERSION: u32 = 1;

/// Returns each store's share at one moment. `believed` returns a store's capability and its
/// uncertainty.
pub fn shares(look: &Look, believed: impl Fn(u64) -> (f64, f64)) -> Vec<Share> {
    let share = |store: u64| {
        let (capability_bytes_per_s, spread) = believed(store);
        Share {
            store,
            leads: look.regions.iter().filter(|region| region.leader == Some(store)).count(),
            holds: look.regions.iter().filter(|region| region.peers.contains(&store)).count(),
            capability_bytes_per_s,
            spread,
        }
    };
    look.stores.iter().map(|look| share(look.store)).collect()
}

/// Returns the range of an even share: an equal share, or one more or less.
fn even(whole: usize, stores: usize) -> RangeInclusive<usize> {
    (whole / stores).saturating_sub(1)..=whole.div_ceil(stores) + 1
}

impl Setup {
    fn is_even(&self, shares: &[Share]) -> bool {
        let leads = even(self.regions, self.stores);
        let holds = even(self.regions * self.replicas.min(self.stores), self.stores);
        shares.len() == self.stores
            && shares.iter().all(|share| leads.contains(&share.leads) && holds.contains(&share.holds))
    }
}

impl Start {
    fn spans(&self, setup: &Setup) -> [Span; 4] {
        [
            Span::new("placing", 0.0, setup.settle_s),
            Span::new("before the load", setup.settle_s, self.load.from_s),
            self.load.clone(),
            Span::new("at rest", self.load.to_s, f64::INFINITY),
        ]
    }

    fn moves_in(&self, setup: &Setup) -> [usize; 4] {
        self.spans(setup).map(|span| span.moves(&self.moves).count())
    }

    /// Returns the largest capability divided by the smallest.
    fn ratio(&self) -> f64 {
        let each = || self.ended.iter().map(|share| share.capability_bytes_per_s);
        each().fold(0.0, f64::max) / each().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE)
    }
}

fn list(shares: &[Share], of: impl Fn(&Share) -> String) -> String {
    shares.iter().map(of).collect::<Vec<_>>().join(", ")
}

impl EqualStores {
    fn of<'a>(&'a self, policy: &'a str) -> impl Iterator<Item = &'a Start> + 'a {
        self.starts.iter().filter(move |start| start.policy == policy)
    }

    pub fn policies(&self) -> Vec<&str> {
        let mut policies: Vec<&str> = Vec::new();
        for start in &self.starts {
            if !policies.contains(&start.policy.as_str()) {
                policies.push(&start.policy);
            }
        }
        policies
    }

    pub fn judge(&self, policy: &str) -> Vec<Verdict> {
        let (setup, all) = (&self.setup, self.of(policy).count());
        let verdict = |claim: String, holds: &dyn Fn(&Start) -> bool| {
            let held = self.of(policy).filter(|start| holds(start)).count();
            Verdict::new(claim, held == all, format!("{held} of {all} starts"))
        };
        let round = setup.stores;
        vec![
            verdict(
                format!(
                    "even after {:.0} s: leaders and regions within one of an equal share",
                    setup.settle_s
                ),
                &|start| setup.is_even(&start.settled),
            ),
            verdict("even at the end".to_owned(), &|start| setup.is_even(&start.ended)),
            verdict(format!("at most one round of moves ({round}) between placing and load"), &|start| {
                start.moves_in(setup)[1] <= round
            }),
            verdict(format!("no move in {:.0} s of load", setup.load_s), &|start| {
                start.moves_in(setup)[2] == 0
            }),
            verdict(format!("no move in {:.0} s after it", setup.calm_s), &|start| {
                start.moves_in(setup)[3] == 0
            }),
        ]
    }

    pub fn report(&self) -> String {
        let setup = &self.setup;
        let mut page = Page::new("Equal stores that measure themselves");
        page.paragraph(format!(
            "{} stores with {}, {} regions of {} copies, each start anew: {:.0} s to measure and to place, {:.0} s of \
             load (YCSB A on records of 1 KiB, as fast as answers come), {:.0} s at rest; {}.",
            setup.stores,
            setup.device.as_deref().unwrap_or("one disk for all"),
            setup.regions,
            setup.replicas,
            setup.settle_s,
            setup.load_s,
            setup.calm_s,
            setup.machine.text()
        ));
        for policy in self.policies() {
            page.subsection(policy);
            page.table(&verdicts(&self.judge(policy)));
            page.table(&self.table(policy));
            let rates: Vec<f64> = self.of(policy).map(|start| start.operations_per_s).collect();
            page.paragraph(format!("Under load {} operations/s in the median.", count(median(&rates))));
        }
        page.into_text()
    }

    fn table(&self, policy: &str) -> Table {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("start", Right),
            ("capability, per s", Left),
            ("within", Left),
            ("largest / smallest", Right),
            ("leaders", Left),
            ("regions", Left),
            ("moves: placing", Right),
            ("then", Right),
            ("load", Right),
            ("rest", Right),
        ]);
        for (number, start) in self.of(policy).enumerate() {
            let mut cells = vec![
                (number + 1).to_string(),
                list(&start.ended, |share| bytes(share.capability_bytes_per_s)),
                list(&start.ended, |share| format!("{:.2}", share.spread)),
                format!("{:.2}", start.ratio()),
                list(&start.ended, |share| share.leads.to_string()),
                list(&start.ended, |share| share.holds.to_string()),
            ];
            cells.extend(start.moves_in(&self.setup).map(|moves| moves.to_string()));
            table.row(cells);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::super::moves::tests::moved;
    use super::super::{RegionLook, StoreLook};
    use super::*;

    fn setup() -> Setup {
        let machine = Machine { cpus: 2, file_system: "ext4".into(), program: "steelyard".into() };
        Setup {
            stores: 4,
            regions: 16,
            replicas: 3,
            device: None,
            starts: 2,
            settle_s: 60.0,
            load_s: 20.0,
            calm_s: 30.0,
            machine,
        }
    }

    fn start(leads: [usize; 4], moves: Vec<Move>) -> Start {
        let share = |(store, &leads): (usize, &usize)| Share {
            store: store as u64,
            leads,
            holds: 12,
            capability_bytes_per_s: 1e8 * (1 + store) as f64,
            spread: 1.3,
        };
        let ended: Vec<Share> = leads.iter().enumerate().map(share).collect();
        Start {
            policy: "alor".into(),
            settled: ended.clone(),
            ended,
            load: Span::new("load", 61.0, 81.0),
            end_s: 111.0,
            operations_per_s: 1000.0,
            moves,
        }
    }

    fn held(start: Start) -> Vec<bool> {
        let run = EqualStores { version: VERSION, setup: setup(), starts: vec![start] };
        run.judge("alor").iter().map(|verdict| verdict.passed).collect()
    }

    #[test]
    fn each_claim_fails_by_what_it_is_about() {
        let transfer = |at_s| moved(at_s, 1, "transfer-leader", 0, 1);
        assert_eq!(held(start([4, 5, 3, 4], vec![transfer(5.0), transfer(59.0)])), [true; 5]);
        assert_eq!(held(start([6, 4, 3, 3], Vec::new())), [false, false, true, true, true]);
        let round = [60.1, 60.2, 60.3, 60.4].map(transfer);
        assert_eq!(held(start([4; 4], round.to_vec())), [true; 5]);
        let more = [&round[..], &[transfer(60.5)]].concat();
        assert_eq!(held(start([4; 4], more)), [true, true, false, true, true]);
        assert_eq!(held(start([4; 4], vec![transfer(70.0)])), [true, true, true, false, true]);
        assert_eq!(held(start([4; 4], vec![transfer(90.0)])), [true, true, true, true, false]);
        let missing =
            Start { ended: start([4; 4], Vec::new()).ended[..3].to_vec(), ..start([4; 4], Vec::new()) };
        assert_eq!(held(missing), [true, false, true, true, true]);
    }

    #[test]
    fn shares_are_counted_by_region() {
        let region = |region, leader, peers: &[u64]| RegionLook {
            region,
            bytes: 0,
            heat: 0.0,
            peers: peers.to_vec(),
            leader,
            has_heir: true,
            bound: false,
        };
        let store = |store| StoreLook { store, used_bytes: 0, capacity_bytes: 0, leaders: 9, regions: 9 };
        let look = Look {
            at_s: 0.0,
            stores: vec![store(0), store(1)],
            regions: vec![region(1, Some(1), &[0, 1]), region(2, None, &[1])],
        };
        let counted: Vec<(usize, usize, f64)> = shares(&look, |store| (store as f64, 1.0))
            .iter()
            .map(|share| (share.leads, share.holds, share.capability_bytes_per_s))
            .collect();
        assert_eq!(counted, [(0, 1, 0.0), (1, 2, 1.0)]);
    }

    #[test]
    fn the_report_counts_starts() {
        let starts = vec![start([4; 4], Vec::new()), start([16, 0, 0, 0], Vec::new())];
        let run = EqualStores { version: VERSION, setup: setup(), starts };
        let text = run.report();
        assert!(text.contains("1 of 2 starts") && text.contains("2 of 2 starts"), "{text}");
        assert!(text.contains("16, 0, 0, 0") && text.contains("4.00"), "{text}");
    }
}
