//! How much may be asked for at once, and how small a gain is not worth a move.

/// Bounds of one planning round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanLimits {
    /// Operators in flight at any time, those begun earlier included.
    pub in_flight_max: usize,
    /// The same, towards any one store.
    pub per_target_max: usize,
    /// Of them those that fill a store with a copy of a region; 0: none are moved, and regions are neither
    /// repaired nor spread over other stores.
    pub data_moves_max: usize,
    /// The same, from or towards any one store.
    pub data_moves_per_store_max: usize,
    /// A peer that is further behind what is committed is no candidate: a transfer waits for it to catch
    /// up, and writes wait for the transfer.
    pub lag_entries_max: u64,
    /// `leader-only` moves only for a gain of at least this many hundredths, so that a capability that is
    /// measured again and comes out a little different moves nothing.
    pub gain_percent_min: u32,
    /// A region of more live bytes is split; 0: none is for its size.
    pub split_bytes: u64,
    /// A region of more operations per second is split; 0: none is for its load.
    pub split_ops: u64,
    /// Neighbours that together have fewer live bytes are merged; 0: none are.
    pub merge_bytes: u64,
}

impl Default for PlanLimits {
    fn default() -> PlanLimits {
        PlanLimits {
            in_flight_max: 32,
            per_target_max: 8,
            data_moves_max: 8,
            data_moves_per_store_max: 2,
            lag_entries_max: 1024,
            gain_percent_min: 5,
            split_bytes: 0,
            split_ops: 0,
            merge_bytes: 0,
        }
    }
}
