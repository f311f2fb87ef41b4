//! Rows on a pipe between two processes: a key and a value each, both of known lengths.

use std::io::{ErrorKind, Read, Write};

use super::scale::{Scale, KEY_BYTES};

pub type Row = ([u8; KEY_BYTES], Vec<u8>);

pub fn send(to: &mut impl Write, key: &[u8], value: &[u8]) -> std::io::Result<()> {
    to.write_all(key)?;
    to.write_all(value)
}

/// Returns the next row, or `None` at the end.
///
/// # Errors
/// The pipe cannot be read, or it ends within a row.
pub fn receive(from: &mut impl Read, scale: &Scale) -> std::io::Result<Option<Row>> {
    let mut key = [0; KEY_BYTES];
    match from.read(&mut key[..1])? {
        0 => return Ok(None),
        _ => from.read_exact(&mut key[1..])?,
    }
    let mut value = vec![0; scale.value_bytes];
    match from.read_exact(&mut value) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(std::io::Error::new(ErrorKind::UnexpectedEof, "the master ended within a row"))
        }
        read => read.map(|()| Some((key, value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_arrive_as_they_were_sent() {
        let scale = Scale { value_bytes: 3, ..Scale::named("smoke").unwrap() };
        let mut pipe = Vec::new();
        send(&mut pipe, &[1; KEY_BYTES], b"one").unwrap();
        send(&mut pipe, &[2; KEY_BYTES], b"two").unwrap();
        let mut from = pipe.as_slice();
        assert_eq!(receive(&mut from, &scale).unwrap(), Some(([1; KEY_BYTES], b"one".to_vec())));
        assert_eq!(receive(&mut from, &scale).unwrap(), Some(([2; KEY_BYTES], b"two".to_vec())));
        assert_eq!(receive(&mut from, &scale).unwrap(), None);
        assert!(receive(&mut &pipe[..20], &scale).is_ok());
        assert!(receive(&mut &pipe[..18], &scale).is_err(), "half a row is an error");
    }
}
