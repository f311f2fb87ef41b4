//! Random choices from a seed.

use types::Draw;

#[derive(Clone, Debug)]
pub struct Chance(Draw);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(Draw::new(seed))
    }

    pub fn draw(&mut self) -> u64 {
        self.0.number()
    }

    /// Returns a number in `0..below`, which must not be empty.
    pub fn below(&mut self, below: u64) -> u64 {
        self.draw() % below
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
