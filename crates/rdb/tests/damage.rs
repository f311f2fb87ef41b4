//! Valid payloads and files with random damage, and random bytes: errors, and never a panic.

use bytes::Bytes;
use proptest::prelude::*;
use steelyard_rdb::{
    open_payload, read_value, seal_payload, skip_value, write, Element, FileReader, FileWriter, KeyFacts,
    Kind, Record, Source,
};

fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from),
        any::<i64>().prop_map(|number| Bytes::from(number.to_string())),
    ]
}

fn values() -> impl Strategy<Value = (Kind, Vec<Element>)> {
    let score = any::<f64>().prop_filter("a score", |score| !score.is_nan());
    prop_oneof![
        bytes(300).prop_map(|text| (Kind::String, vec![Element::String(text)])),
        proptest::collection::vec(bytes(80).prop_map(Element::Item), 1..40).prop_map(|all| (Kind::List, all)),
        proptest::collection::vec(bytes(80).prop_map(Element::Member), 1..40)
            .prop_map(|all| (Kind::Set, all)),
        proptest::collection::vec(
            (bytes(40), bytes(80)).prop_map(|(name, value)| Element::Field(name, value)),
            1..40
        )
        .prop_map(|all| (Kind::Hash, all)),
        proptest::collection::vec(
            (bytes(40), score).prop_map(|(name, score)| Element::Scored(name, score)),
            1..40
        )
        .prop_map(|all| (Kind::SortedSet, all)),
    ]
}

fn written(kind: Kind, elements: &[Element]) -> Vec<u8> {
    let mut value = Vec::new();
    write::header(&mut value, kind, elements.len() as u64);
    elements.iter().for_each(|element| write::element(&mut value, element));
    value
}

/// A key of a file: its database, name, expiry time and elements.
type Found = (u64, Bytes, Option<u64>, Vec<Element>);

fn read(number: u8, value: &[u8]) -> steelyard_rdb::Result<Vec<Element>> {
    let mut source = Source::new(value).with_string_bytes_max(1 << 20);
    let mut all = Vec::new();
    read_value(number, &mut source, &mut |element| {
        all.push(element);
        Ok(())
    })?;
    Ok(all)
}

/// Encoded values as Redis writes them: one of each packed encoding.
fn packed() -> Vec<(u8, Vec<u8>)> {
    let listpack = b"\x11\0\0\0\x04\0\x81a\x02\x01\x01\x81b\x02\x02\x01\xff";
    let ziplist = b"\x11\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\x01b\xff";
    let ziplist = &ziplist[..];
    let string = |blob: &[u8]| {
        let mut value = Vec::new();
        write::string(&mut value, blob);
        value
    };
    let node = |blob: &[u8]| [&[1][..], &string(blob)].concat();
    let packed_node = |blob: &[u8]| [&[1, 2][..], &string(blob)].concat();
    vec![
        (9, string(b"\x01\x01a\x02\x00xy\xff")),
        (10, string(ziplist)),
        (11, string(&[2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 5, 0])),
        (13, string(ziplist)),
        (14, node(ziplist)),
        (16, string(listpack)),
        (17, string(listpack)),
        (18, packed_node(listpack)),
        (20, string(listpack)),
        (0, b"\xc3\x05\x0d\x00x\xe0\x03\x00".to_vec()),
        (3, b"\x02\x01a\x041.25\x01b\xfe".to_vec()),
    ]
}

#[test]
fn the_packed_samples_are_valid() {
    for (number, value) in packed() {
        if let Err(error) = read(number, &value) {
            panic!("type {number}: {error}");
        }
    }
}

proptest! {
    #[test]
    fn values_are_read_as_they_were_written((kind, elements) in values()) {
        let mut payload = vec![write::type_number(kind)];
        payload.extend(written(kind, &elements));
        seal_payload(&mut payload);
        let (number, value) = open_payload(&payload.into()).unwrap();
        prop_assert_eq!(read(number, &value).unwrap(), elements);
    }

    #[test]
    fn damaged_values_are_errors_or_other_values(
        (kind, elements) in values(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let number = write::type_number(kind);
        for (number, mut value) in packed().into_iter().chain([(number, written(kind, &elements))]) {
            for (at, byte) in &damage {
                let at = at.index(value.len());
                value[at] = *byte;
            }
            let _ = read(number, &value);
            let _ = read(number, &value[..cut.index(value.len())]);
        }
    }

    #[test]
    fn random_bytes_are_errors_or_values(number in 0u8..30, value in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(number, &value);
        let _ = skip_value(number, &mut Source::new(&value[..]));
        // The bytes as a packed collection, whose length is right.
        let mut blob = value.clone();
        if blob.len() > 4 {
            let length = blob.len() as u32;
            blob[..4].copy_from_slice(&length.to_le_bytes());
        }
        let mut packed = Vec::new();
        write::string(&mut packed, &blob);
        let _ = read(number, &packed);
        let _ = open_payload(&Bytes::from(value));
    }

    #[test]
    fn files_are_read_as_they_were_written_and_damage_is_noticed(
        all in proptest::collection::vec((0u64..4, bytes(20), proptest::option::of(1u64..1 << 50), values()), 0..6),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut file = FileWriter::create(Vec::new(), &[("redis-ver", "7.0.15")]).unwrap();
        for (db, key, expire_at_ms, (kind, elements)) in &all {
            let facts = KeyFacts { key: key.clone(), expire_at_ms: *expire_at_ms, type_number: write::type_number(*kind) };
            file.begin_key(*db, &facts, &[]).unwrap();
            file.elements(&written(*kind, elements)).unwrap();
        }
        let bytes = file.finish().unwrap();
        let walk = |bytes: &[u8]| -> steelyard_rdb::Result<Vec<Found>> {
            let mut reader = FileReader::open(bytes)?;
            let (mut db, mut found) = (0, Vec::new());
            while let Some(record) = reader.next_record()? {
                match record {
                    Record::Database(number) => db = number,
                    Record::Key(facts) => {
                        let mut elements = Vec::new();
                        reader.value(&facts, &mut |element| {
                            elements.push(element);
                            Ok(())
                        })?;
                        found.push((db, facts.key, facts.expire_at_ms, elements));
                    }
                    _ => {}
                }
            }
            Ok(found)
        };
        let expected: Vec<_> = all
            .iter()
            .map(|(db, key, at, (_, elements))| (*db, key.clone(), *at, elements.clone()))
            .collect();
        prop_assert_eq!(walk(&bytes).unwrap(), expected);
        let mut wrong = bytes.clone();
        wrong[at.index(bytes.len())] ^= 1 << bit;
        prop_assert!(walk(&wrong).is_err(), "the checksum covers every bit");
        prop_assert!(walk(&bytes[..at.index(bytes.len())]).is_err());
    }
}
