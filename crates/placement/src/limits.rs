//! The bounds of planning: how many operators may be in flight, and how much a move must gain.

/// The bounds of one planning round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanLimits {
    /// Maximum number of operators in flight, including those of earlier rounds.
    pub in_flight_max: usize,
    /// Maximum number of leaders in flight towards one store.
    pub per_target_max: usize,
    /// Maximum number of operators in flight that copy a region to a store. 0: peers stay where
    /// they are, and regions are neither repaired nor spread over other stores.
    pub data_moves_max: usize,
    /// Maximum number of these from or towards one store. Peers change places only if it is at
    /// least 2.
    pub data_moves_per_store_max: usize,
    /// The same maximum for operators that repair a region or empty a store, as long as the regions
    /// in flight are small. A move takes some seconds however small its region is, and a store that
    /// is replaced may have hundreds of regions.
    pub repairs_per_store_max: usize,
    /// Seconds for which the regions in flight to or from a store may occupy it, according to its
    /// measured write speed, if they are more than `data_moves_per_store_max`.
    pub repair_seconds: u64,
    /// Maximum number of log entries that a peer may be behind the commit index to become leader. A
    /// transfer waits for the peer to catch up, and writes wait for the transfer.
    pub lag_entries_max: u64,
    /// Maximum time in milliseconds that a store may need to apply its backlog and still get
    /// leaders. A new leader does not serve its region before it has applied everything.
    pub unapplied_ms_max: u32,
    /// Minimum gain in percent for which a leader moves to a faster store, and for which load moves
    /// to a less busy one. A slightly different measurement of a capability or load must not move
    /// anything.
    pub gain_percent_min: u32,
    /// Minimum difference between the levels of two stores, in percent of the mean level, for which
    /// data moves between them.
    pub data_gap_percent_min: u32,
    /// Minimum size in live bytes with which a region counts when data is placed. The cost of a
    /// small region is not in its bytes, so balancing those bytes helps no client.
    pub region_bytes_min: u64,
    /// Minimum load in percent at which a store is relieved. Below it clients do not wait for the
    /// store yet, and they would wait longer for a slower one.
    pub busy_percent_min: u32,
    /// A store that holds more than this percentage of its capacity sheds data (ALOR §3.2: 95%).
    pub full_percent: u32,
    /// A store that sheds data stops when it holds less than this percentage of its capacity.
    pub full_percent_low: u32,
    /// CPU use of a machine, in percent, up to which a policy moves leaders to its stores. It is
    /// exceeded only if no voter's machine has room. Leaders move from a machine above it to voters
    /// on machines with room.
    pub cpu_percent_max: u32,
    /// The same maximum for a machine that was above `cpu_percent_max`. It applies for at least ten
    /// minutes, and until the machine has been below it.
    pub cpu_percent_low: u32,
    /// Regions count as equally cold if their heat per byte exceeds that of the coldest by at most
    /// this percentage. Of these, the region whose other peers are the fastest is shed first,
    /// except under `even`. Heat is a measured average and differs each time it is measured.
    pub heat_gap_percent: u32,
    /// Maximum fill in percent up to which a store is filled to balance data or load. Peers that
    /// change places are exempt. It is so far below `full_percent_low` that a store that shed
    /// slightly too much takes nothing back.
    pub fill_percent: u32,
    /// Maximum fill in percent. Nothing moves to a store that would hold more.
    pub reserve_percent: u32,
    /// Time in seconds within which a copy made for the sake of load must gain more than it costs.
    pub repay_seconds: u32,
    /// Size in live bytes above which a region is split. 0: no region is split because of its size.
    pub split_bytes: u64,
    /// Load in operations per second above which a region is split. 0: no region is split because
    /// of its load.
    pub split_ops: u64,
    /// Size in live bytes below which two neighbours together are merged. 0: no regions are merged.
    /// At most half of `split_bytes` is used.
    pub merge_bytes: u64,
    /// Merging stops at this number of user regions per store that is up. With fewer regions there
    /// would be nothing left to balance.
    pub regions_per_store_min: usize,
}

impl Default for PlanLimits {
    fn default() -> PlanLimits {
        PlanLimits {
            in_flight_max: 32,
            per_target_max: 8,
            data_moves_max: 8,
            data_moves_per_store_max: 2,
            repairs_per_store_max: 8,
            repair_seconds: 30,
            lag_entries_max: 1024,
            unapplied_ms_max: 1000,
            gain_percent_min: 5,
            data_gap_percent_min: 5,
            region_bytes_min: 1 << 20,
            busy_percent_min: 75,
            full_percent: 95,
            full_percent_low: 90,
            cpu_percent_max: 75,
            cpu_percent_low: 60,
            heat_gap_percent: 10,
            fill_percent: 85,
            reserve_percent: 98,
            repay_seconds: 600,
            split_bytes: 0,
            split_ops: 0,
            merge_bytes: 0,
            regions_per_store_min: 8,
        }
    }
}
