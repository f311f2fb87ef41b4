//! Counters of the service, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        /// The values of all counters at about one moment.
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
    /// Bytes of the files that were made.
    made_bytes,
    sent,
    send_failed,
    /// Bytes of sent files; a file that was sent twice counts twice.
    sent_bytes,
    received,
    /// Offers that were refused because of a lack of room or because of their contents.
    refused,
    received_bytes,
    /// Frames and files with a wrong checksum.
    damaged,
    /// Streams that continued after an earlier connection was lost.
    resumed,
    ingested,
}

impl Counters {
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}
