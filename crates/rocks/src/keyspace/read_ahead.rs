//! The length of readings of ranges from flash.
//!
//! A scan that lacks a range waits for flash, or its entry goes to the thread that may wait. So a
//! table of a slot in which ranges were missing again and again is read further each time, as long
//! as there is free room for it: random picks from a large set need all of its ranges soon.

use bytes::Bytes;
use storage::tier::{KNOWN_ROW_BYTES, RANGE_BYTES_MAX, RANGE_ROWS_MAX};

/// Number of rows that are read at first. The range has room for some more.
const ROWS: usize = RANGE_ROWS_MAX / 2;
/// Maximum number of times as many rows and bytes that are read at once.
const TIMES_MAX: usize = 16;
/// Estimated bytes that a usual reading takes of the known ranges' budget, or a little more.
const READING_BYTES: u64 = RANGE_BYTES_MAX as u64 + ROWS as u64 * KNOWN_ROW_BYTES;
/// The part of the free room that a larger reading may take.
const ROOM_PART: u64 = 4;

/// The length of the last reading.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// The end of the table that was read last.
    table_end: Option<Bytes>,
    /// Its length in usual readings, if there was room.
    times: usize,
}

impl ReadAhead {
    /// Returns the maximum number of rows and of their bytes for the next reading. Both double
    /// while one table is read again and again. `room` is the free part of the budget, in bytes.
    pub fn next(&mut self, table_end: Option<&Bytes>, room: u64) -> (usize, usize) {
        let is_again = table_end.is_some() && table_end == self.table_end.as_ref();
        self.times = if is_again { (2 * self.times).min(TIMES_MAX) } else { 1 };
        self.table_end = table_end.cloned();
        let fitting = usize::try_from(room / ROOM_PART / READING_BYTES).unwrap_or(TIMES_MAX);
        let times = self.times.min(fitting).max(1);
        (times * ROWS, times * RANGE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_further_each_time_while_there_is_room() {
        let (one, other) = (Bytes::from_static(b"one"), Bytes::from_static(b"other"));
        let mut ahead = ReadAhead::default();
        let mut times = |table_end, room| ahead.next(table_end, room).0 / ROWS;
        assert_eq!([(); 6].map(|()| times(Some(&one), u64::MAX)), [1, 2, 4, 8, 16, 16]);
        assert_eq!([0, READING_BYTES, 13 * READING_BYTES].map(|room| times(Some(&one), room)), [1, 1, 3]);
        assert_eq!(times(Some(&one), u64::MAX), 16);
        assert_eq!([&other, &other, &one].map(|table_end| times(Some(table_end), u64::MAX)), [1, 2, 1]);
        assert_eq!([(); 3].map(|()| times(None, u64::MAX)), [1, 1, 1], "rows without a table");
    }
}
