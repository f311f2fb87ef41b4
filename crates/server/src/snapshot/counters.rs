//! What the service did so far, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        /// All counters at one moment, more or less.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    made,
    make_failed,
    /// Of the files of those that were made.
    made_bytes,
    sent,
    send_failed,
    /// Of files, those that were sent twice counted twice.
    sent_bytes,
    received,
    /// Offers that were answered by no, for want of room or for what they said.
    refused,
    received_bytes,
    /// Frames and files whose checksum was wrong.
    damaged,
    /// Streams that went on where an earlier connection had broken off.
    resumed,
    ingested,
}

impl Counters {
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}
