//! Random numbers from a seed.

use types::Draw;

pub struct Chance(Draw);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(Draw::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.number()
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn percent(&mut self, chances: usize) -> bool {
        self.below(100) < chances
    }

    pub fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}
