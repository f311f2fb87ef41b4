//! A list that grows without moving what it has.

/// Number of things in a chunk.
const CHUNK: usize = 1024;

/// A list of things with numbers. A vector of a million things copies all of them when it is full,
/// and takes the memory of both copies meanwhile; this list adds a chunk.
#[derive(Debug)]
pub(crate) struct Chunked<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Chunked<T> {
    fn default() -> Chunked<T> {
        Chunked { chunks: Vec::new() }
    }
}

impl<T> Chunked<T> {
    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    pub fn get(&self, number: usize) -> Option<&T> {
        self.chunks.get(number / CHUNK)?.get(number % CHUNK)
    }

    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.chunks.get_mut(number / CHUNK)?.get_mut(number % CHUNK)
    }

    /// Appends a thing and returns its number.
    pub fn push(&mut self, thing: T) -> usize {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(thing),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(thing);
                self.chunks.push(chunk);
            }
        }
        self.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_keep_their_numbers() {
        let mut list = Chunked::default();
        assert_eq!((list.len(), list.get(0)), (0, None));
        for number in 0..3 * CHUNK + 5 {
            assert_eq!(list.push(number), number);
            assert_eq!(list.len(), number + 1);
        }
        *list.get_mut(CHUNK).unwrap() = 7;
        let expected = |number: usize| Some(if number == CHUNK { 7 } else { number });
        assert!((0..list.len()).all(|number| list.get(number).copied() == expected(number)));
        assert_eq!(list.get(list.len()), None);
    }
}
