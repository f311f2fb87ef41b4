//! Values for tests and loads.

use types::Draw;

/// Returns printable bytes that do not compress well.
pub fn printable(bytes: usize, seed: u64) -> Vec<u8> {
    let mut draw = Draw::new(seed);
    (0..bytes).map(|_| b'!' + (draw.number() % 90) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_length_asked_for() {
        assert_eq!(printable(1024, 1).len(), 1024);
        assert_ne!(printable(64, 1), printable(64, 2));
    }
}
