//! Valid payloads and files with random damage, and random bytes: errors, and never a panic.

use bytes::Bytes;
use proptest::prelude::*;
use steelyard_rdb::{
    open_payload, read_value, seal_payload, skip_value, write, Element, EntryId, Error, FileReader,
    FileWriter, KeyFacts, Kind, Record, Source, StreamPart, StreamWriter,
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
        streams().prop_map(|parts| (Kind::Stream, parts.into_iter().map(Element::Stream).collect())),
    ]
}

fn ids() -> impl Strategy<Value = EntryId> {
    let number = || prop_oneof![1u64..300, any::<u64>()];
    (number(), number()).prop_map(|(ms, seq)| EntryId { ms, seq })
}

/// A group: its consumers, and its pending entries with the number of their consumer.
fn groups() -> impl Strategy<Value = Vec<StreamPart>> {
    let time = || 0..=i64::MAX as u64;
    let consumers = proptest::collection::btree_map(bytes(20), time(), 0..4);
    let pending = proptest::collection::btree_map(ids(), (time(), any::<u64>(), any::<usize>()), 0..20);
    (ids(), any::<i64>(), consumers, pending).prop_map(|(last_id, entries_read, consumers, pending)| {
        let mut parts = vec![StreamPart::Group { name: Bytes::new(), last_id, entries_read }];
        let count = consumers.len();
        for (at, (name, seen_ms)) in consumers.into_iter().enumerate() {
            parts.push(StreamPart::Consumer { name, seen_ms });
            for (id, (delivered_ms, deliveries, of)) in &pending {
                let (id, delivered_ms, deliveries) = (*id, *delivered_ms, *deliveries);
                if of % count == at {
                    parts.push(StreamPart::Pending { id, delivered_ms, deliveries });
                }
            }
        }
        parts
    })
}

/// The parts of a stream, without those of nodes.
fn streams() -> impl Strategy<Value = Vec<StreamPart>> {
    let pairs = proptest::collection::vec((0u8..3, bytes(80)), 1..4);
    let entries = proptest::collection::btree_map(ids(), pairs, 0..250);
    let groups = proptest::collection::btree_map(bytes(20), groups(), 0..3);
    (entries, ids(), ids(), any::<u64>(), groups).prop_map(|(entries, later, deleted, added, groups)| {
        let last_id = entries.keys().last().map_or(later, |last| later.max(*last));
        let mut parts: Vec<StreamPart> = entries
            .into_iter()
            .map(|(id, pairs)| {
                let name = |number: u8| Bytes::from(vec![b'a' + number; usize::from(number) * 40]);
                let pairs = pairs.into_iter().flat_map(|(field, value)| [name(field), value]).collect();
                StreamPart::Entry { id, pairs }
            })
            .collect();
        parts.push(StreamPart::Numbers { last_id, max_deleted_id: deleted, entries_added: added });
        for (of, group) in groups {
            parts.extend(group.into_iter().map(|part| match part {
                StreamPart::Group { last_id, entries_read, .. } => {
                    StreamPart::Group { name: of.clone(), last_id, entries_read }
                }
                part => part,
            }));
        }
        parts
    })
}

fn parts_of(elements: &[Element]) -> Vec<StreamPart> {
    let part = |element: &Element| match element {
        Element::Stream(part) => Some(part.clone()),
        _ => None,
    };
    elements.iter().filter_map(part).collect()
}

/// Returns elements without the bounds of a stream's nodes.
fn without_nodes(elements: Vec<Element>) -> Vec<Element> {
    let is_node = |element: &Element| matches!(element, Element::Stream(StreamPart::Node { .. }));
    elements.into_iter().filter(|element| !is_node(element)).collect()
}

fn written(kind: Kind, elements: &[Element]) -> Vec<u8> {
    if kind == Kind::Stream {
        return StreamWriter::encode(&parts_of(elements)).unwrap();
    }
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
        (15, stream_of_redis(15)),
        (19, stream_of_redis(19)),
        (21, stream_of_redis(21)),
    ]
}

/// A stream as Redis 7.0 has it, or in an earlier or later version of the format. It has the
/// entries 5-1, which was deleted, 5-2 and 6-0, and a group whose consumer `me` has 5-2.
fn stream_of_redis(number: u8) -> Vec<u8> {
    let node = b"\x01\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01\x40\x42\x42\0\0\0\x19\0\x02\x01\x01\x01\x02\
        \x01\x81\x61\x02\x81\x62\x02\0\x01\x03\x01\0\x01\0\x01\x01\x01\x82xx\x03\x05\x01\x02\x01\0\x01\
        \x01\x01\x02\x01\x82yy\x03\x05\x01\0\x01\x01\x01\xdf\xff\x02\x01\x01\x81c\x02\xc1\x2c\x02\x06\x01\xff";
    let mut value = node.to_vec();
    value.extend(b"\x02\x06\0");
    if number != 15 {
        value.extend(b"\x05\x02\x05\x01\x03");
    }
    value.extend(b"\x01\x01g\x05\x02");
    if number != 15 {
        value.push(2);
    }
    let (time, id) = (b"\xaf\x13\xa4\x20\xa2\x01\0\0", b"\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02");
    value.push(1);
    value.extend(id);
    value.extend(time);
    value.extend(b"\x01\x02");
    for (name, owned) in [(&b"\x02me"[..], true), (b"\x03you", false)] {
        value.extend(name);
        value.extend(time);
        if number == 21 {
            // The time of the last delivery, which Redis does not know for `you`.
            value.extend(if owned { time } else { &[0xff; 8] });
        }
        value.push(u8::from(owned));
        value.extend(if owned { &id[..] } else { &[] });
    }
    value
}

#[test]
fn the_three_versions_of_streams_have_the_same_contents() {
    let id = |ms, seq| EntryId { ms, seq };
    let texts = |texts: &[&str]| texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect();
    let seen_ms = 0x1a2_20a4_13af;
    let expected = |max_deleted_id, entries_added, entries_read| {
        vec![
            StreamPart::Node { id: id(5, 1), fields: texts(&["a", "b"]), entries: 3, bytes: 0x42 },
            StreamPart::Entry { id: id(5, 2), pairs: texts(&["a", "2", "b", "yy"]) },
            StreamPart::Entry { id: id(6, 0), pairs: texts(&["c", "300"]) },
            StreamPart::Numbers { last_id: id(6, 0), max_deleted_id, entries_added },
            StreamPart::Group { name: "g".into(), last_id: id(5, 2), entries_read },
            StreamPart::Consumer { name: "me".into(), seen_ms },
            StreamPart::Pending { id: id(5, 2), delivered_ms: seen_ms, deliveries: 1 },
            StreamPart::Consumer { name: "you".into(), seen_ms },
        ]
    };
    for number in [19, 21] {
        let read = read(number, &stream_of_redis(number)).unwrap();
        assert_eq!(parts_of(&read), expected(id(5, 1), 3, 2));
        let again = written(Kind::Stream, &read);
        assert_eq!(without_nodes(self::read(19, &again).unwrap()), without_nodes(read));
    }
    // Redis 7.0 estimates that the group has read the first entry.
    let read = read(15, &stream_of_redis(15)).unwrap();
    assert_eq!(parts_of(&read), expected(EntryId::MIN, 2, 1));
}

#[test]
fn a_stream_with_wrong_numbers_or_out_of_order_is_damaged() {
    let id = |ms| EntryId { ms, seq: 0 };
    let entry = |ms| StreamPart::Entry { id: id(ms), pairs: vec!["a".into(), "b".into()] };
    let numbers = |ms| StreamPart::Numbers { last_id: id(ms), max_deleted_id: id(0), entries_added: 2 };
    let group =
        |name: &'static str| StreamPart::Group { name: name.into(), last_id: id(0), entries_read: -1 };
    let consumer = |name: &'static str| StreamPart::Consumer { name: name.into(), seen_ms: 5 };
    let pending = |ms| StreamPart::Pending { id: id(ms), delivered_ms: 5, deliveries: 1 };
    let is_read = |parts: &[StreamPart]| {
        let parts: Vec<Element> = parts.iter().cloned().map(Element::Stream).collect();
        read(19, &written(Kind::Stream, &parts)).is_ok()
    };
    assert!(is_read(&[entry(1), entry(2), numbers(2)]));
    assert!(!is_read(&[entry(2), entry(1), numbers(2)]), "the order of entries");
    assert!(!is_read(&[entry(1), entry(1), numbers(2)]), "an entry twice");
    assert!(!is_read(&[entry(1), entry(2), numbers(1)]), "the last ID");
    assert!(!is_read(&[StreamPart::Entry { id: id(1), pairs: vec![] }, numbers(2)]), "no fields");
    assert!(is_read(&[numbers(0), group("a"), consumer("x"), pending(3), consumer("y"), pending(2)]));
    assert!(!is_read(&[numbers(0), group("a"), group("a")]), "a group twice");
    assert!(!is_read(&[numbers(0), group("a"), consumer("x"), consumer("x")]), "a consumer twice");
    assert!(
        !is_read(&[numbers(0), group("a"), consumer("x"), pending(3), consumer("y"), pending(3)]),
        "a pending entry of two consumers"
    );
    // One node, whose entry says that it has fields of its own, and has none.
    let node = [0u64.to_be_bytes(), 0u64.to_be_bytes()].concat();
    let stream_of = |entry: &[u8]| {
        // One entry, none deleted, one field `a`, and the end of the node's head.
        let mut list = [&[0x01, 1, 0x00, 1, 0x01, 1, 0x81, b'a', 2, 0x00, 1][..], entry, &[0xff]].concat();
        let elements: u16 = 5 + entry.len() as u16 / 2;
        let bytes = (list.len() + 6) as u32;
        list.splice(0..0, [&bytes.to_le_bytes()[..], &elements.to_le_bytes()].concat());
        let mut value = vec![1];
        write::string(&mut value, &node);
        write::string(&mut value, &list);
        // Length, last ID, first ID, largest deleted ID, entries added, no groups.
        value.extend([1, 1, 0, 1, 0, 0, 0, 1, 0]);
        value
    };
    let same_fields = [0x02, 1, 0x01, 1, 0x00, 1, 0x01, 1, 0x04, 1];
    assert!(read(19, &stream_of(&same_fields)).is_ok());
    let no_fields = [0x00, 1, 0x01, 1, 0x00, 1, 0x00, 1, 0x04, 1];
    assert!(read(19, &stream_of(&no_fields)).is_err(), "an entry without fields");
    let mut value = stream_of_redis(19);
    let count = value.len() - 1 - 8 - 4 - 16 - 1;
    assert_eq!(value[count], 1, "the number of the pending entries of `me`");
    value[count] = 0;
    value.drain(count + 1..count + 17);
    assert!(read(19, &value).is_err(), "a pending entry without a consumer");
}

#[test]
fn pending_entries_are_bounded_and_the_next_value_can_be_read() {
    let value = [&stream_of_redis(19)[..], b"next"].concat();
    let mut source = Source::new(&value[..]).with_pending_max(0);
    let read = read_value(19, &mut source, &mut |_| Ok(()));
    assert!(matches!(read, Err(Error::TooManyPending(0))));
    assert_eq!(source.position() as usize, value.len() - 4);
    let mut skipped = Source::new(&value[..]);
    skip_value(19, &mut skipped).unwrap();
    assert_eq!(skipped.position(), source.position());
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
        prop_assert_eq!(without_nodes(read(number, &value).unwrap()), elements);
        let mut skipped = Source::new(&value[..]);
        skip_value(number, &mut skipped).unwrap();
        prop_assert_eq!(skipped.position() as usize, value.len());
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
                        found.push((db, facts.key, facts.expire_at_ms, without_nodes(elements)));
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
