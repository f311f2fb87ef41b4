//! How much may be asked for at once, and how small a gain is not worth a move.

/// Bounds of one planning round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanLimits {
    /// Operators in flight at any time, those begun earlier included.
    pub in_flight_max: usize,
    /// Of them leaders that move towards any one store.
    pub per_target_max: usize,
    /// Of them those that fill a store with a copy of a region; 0: peers stay where they are, regions are
    /// neither repaired nor spread over other stores.
    pub data_moves_max: usize,
    /// The same, from or towards any one store. Peers change places where two may.
    pub data_moves_per_store_max: usize,
    /// A peer that is further behind what is committed is no candidate: a transfer waits for it to catch
    /// up, and writes wait for the transfer.
    pub lag_entries_max: u64,
    /// Nor is a peer on a store that would take longer to apply what it has, by what it can write: its regions
    /// would not be served before.
    pub unapplied_ms_max: u32,
    /// A leader moves to a more capable store only for a gain of at least this many hundredths, and load
    /// moves only to a store that is less busy by as much, so that a capability or a load that is measured
    /// again and comes out a little different moves nothing.
    pub gain_percent_min: u32,
    /// Data moves between two stores only when their levels differ by more than this many hundredths of
    /// the mean level.
    pub data_gap_percent_min: u32,
    /// When data is shared out, a region of fewer live bytes counts as if it had so many: what small ones
    /// cost is not their bytes, and to copy them about for those helps nobody.
    pub region_bytes_min: u64,
    /// A store that is busy for less than this part of its time, in hundredths, is not relieved: nobody waits for
    /// it yet, and its clients would wait longer for a slower one.
    pub busy_percent_min: u32,
    /// A store that holds more than this part of its capacity sheds data (ALOR §3.2: 95%) …
    pub full_percent: u32,
    /// … until it holds less than this.
    pub full_percent_low: u32,
    /// No policy brings a lead to a store whose machine would have more than this part of its CPU busy with it, in
    /// hundredths, while another voter's has room; a store above it hands leads to voters with room …
    pub cpu_percent_max: u32,
    /// … and is brought leads only up to this for ten minutes, and until it has been below this.
    pub cpu_percent_low: u32,
    /// Of regions whose heat per byte exceeds the coldest's by no more hundredths than this, the one goes whose
    /// other peers are the fastest (but under `even`): heat is an average of what was measured, and never twice the
    /// same.
    pub heat_gap_percent: u32,
    /// To even out data, or load, no store is filled beyond this, but by what changes places with what it has. Far
    /// enough below the others that a store that shed a little too much takes nothing back.
    pub fill_percent: u32,
    /// Nothing moves to a store that would hold more than this afterwards.
    pub reserve_percent: u32,
    /// A region is copied for the sake of load only when what that gains in so many seconds exceeds what
    /// the copy costs.
    pub repay_seconds: u32,
    /// A region of more live bytes is split; 0: none is for its size.
    pub split_bytes: u64,
    /// A region of more operations per second is split; 0: none is for its load.
    pub split_ops: u64,
    /// Neighbours that together have fewer live bytes are merged; 0: none are. Counts for at most half of
    /// `split_bytes`.
    pub merge_bytes: u64,
    /// Merging stops at so many user regions for each store that is up: with fewer there is nothing left to
    /// share out.
    pub regions_per_store_min: usize,
}

impl Default for PlanLimits {
    fn default() -> PlanLimits {
        PlanLimits {
            in_flight_max: 32,
            per_target_max: 8,
            data_moves_max: 8,
            data_moves_per_store_max: 2,
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
