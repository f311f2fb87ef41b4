//! The bodies of fuzz targets, which `fuzz/` calls.

use bytes::Bytes;

use crate::{
    open_payload, read_libraries, read_value, seal_payload, skip_value, write, write_libraries, Element,
    Error, FileReader, FileWriter, KeyFacts, Kind, Record, Source,
};

/// Maximum bytes of the strings and elements of an input, which may be compressed.
const BYTES_MAX: u64 = 1 << 20;

/// Reads a payload of `RESTORE`, of `FUNCTION RESTORE`, or a file. An input's first byte chooses
/// between them. Payloads get the right checksum, which no fuzzer finds.
pub fn rdb(input: &[u8]) {
    match input.split_first() {
        Some((0, payload)) => value(payload),
        Some((1, payload)) => libraries(payload),
        Some((_, file)) => read_file(file),
        None => {}
    }
}

/// Collects elements until there are too many bytes.
fn collect(elements: &mut Vec<Element>, bytes: &mut u64, element: Element) -> Result<(), Error> {
    *bytes += element.len() as u64 + 1;
    if *bytes > BYTES_MAX {
        return Err(Error::TooLarge("too many bytes"));
    }
    elements.push(element);
    Ok(())
}

fn read(number: u8, value: &[u8]) -> Result<(Vec<Element>, u64), Error> {
    let mut source = Source::new(value).with_string_bytes_max(BYTES_MAX);
    let (mut elements, mut bytes) = (Vec::new(), 0);
    read_value(number, &mut source, &mut |element| collect(&mut elements, &mut bytes, element))?;
    Ok((elements, source.position()))
}

fn value(payload: &[u8]) {
    let mut sealed = payload.to_vec();
    seal_payload(&mut sealed);
    let _ = open_payload(&Bytes::copy_from_slice(payload));
    let Ok((number, value)) = open_payload(&sealed.into()) else { return };
    let mut source = Source::new(&value[..]).with_string_bytes_max(BYTES_MAX);
    let skipped = skip_value(number, &mut source);
    let Ok((elements, end)) = read(number, &value) else { return };
    assert!(skipped.is_ok() && source.position() == end, "a value ends where it is skipped to");
    let kind = crate::kind_of(number).expect("a value that was read");
    // A stream is written with other bounds of its nodes than it was read with.
    if kind == Kind::Stream {
        return;
    }
    let written = written(kind, &elements);
    let (again, end) = read(write::type_number(kind), &written).expect("what was written");
    assert_eq!(end, written.len() as u64);
    assert_eq!(again, elements, "a value is read as it was written");
}

fn written(kind: Kind, elements: &[Element]) -> Vec<u8> {
    let mut out = Vec::new();
    write::header(&mut out, kind, elements.len() as u64);
    elements.iter().for_each(|element| write::element(&mut out, element));
    out
}

fn libraries(payload: &[u8]) {
    let mut sealed = payload.to_vec();
    seal_payload(&mut sealed);
    let _ = read_libraries(&Bytes::copy_from_slice(payload), BYTES_MAX);
    let Ok(codes) = read_libraries(&sealed.into(), BYTES_MAX) else { return };
    assert!(codes.iter().map(Bytes::len).sum::<usize>() as u64 <= BYTES_MAX);
    let again = read_libraries(&write_libraries(codes.iter()).into(), BYTES_MAX);
    assert_eq!(again.expect("what was written"), codes);
}

/// Reads the records of a file, every other value, and writes what was read.
fn read_file(file: &[u8]) {
    let Ok(mut reader) = FileReader::open(file) else { return };
    let mut writer = FileWriter::create(Vec::new(), &[]).expect("memory");
    let (mut keys, mut database, mut left) = (Vec::new(), 0, BYTES_MAX);
    while let Ok(Some(record)) = reader.next_record() {
        match record {
            Record::Database(number) => database = number,
            Record::Key(facts) if keys.len() % 2 == 0 => {
                let (mut elements, mut bytes) = (Vec::new(), BYTES_MAX - left);
                let read = reader.value(&facts, &mut |element| collect(&mut elements, &mut bytes, element));
                if read.is_err() {
                    break;
                }
                left = BYTES_MAX - bytes;
                let kind = crate::kind_of(facts.type_number).expect("a value that was read");
                if kind == Kind::Stream {
                    continue;
                }
                let facts = KeyFacts { type_number: write::type_number(kind), ..facts };
                writer.begin_key(database, &facts, &written(kind, &elements)).expect("memory");
                keys.push((database, facts, elements));
            }
            Record::Key(facts) => match reader.skip(&facts) {
                Ok(()) => {}
                Err(_) => break,
            },
            Record::Aux(..) | Record::Sizes(..) | Record::Function(_) | Record::ModuleData => {}
        }
    }
    let written = writer.finish().expect("memory");
    let mut again = FileReader::open(&written[..]).expect("what was written");
    let (mut database, mut keys) = (0, keys.into_iter());
    while let Some(record) = again.next_record().expect("what was written") {
        match record {
            Record::Database(number) => database = number,
            Record::Key(facts) => {
                let mut elements = Vec::new();
                let value = again.value(&facts, &mut |element| {
                    elements.push(element);
                    Ok(())
                });
                value.expect("what was written");
                assert_eq!(Some((database, facts, elements)), keys.next(), "a key is read as it was written");
            }
            other => panic!("{other:?} was not written"),
        }
    }
    assert_eq!(keys.next(), None);
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_of_the_fuzz_target_harm_nothing() {
        super::replay::seeds("rdb", super::rdb);
    }
}
