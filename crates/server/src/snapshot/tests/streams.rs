//! Files that are built while they are sent.

use rocks::snapshot::SnapshotFile;

use super::super::sender::WINDOW_BYTES;
use super::super::wire::{Place, DATA_BYTES_MAX};
use super::*;

/// Returns two stores, the first of which sends streams and has a region of this many bytes.
fn pair_with(source: Limits, target: Limits, bytes: usize) -> Pair {
    let pair = Pair::with(source, target, None);
    pair.source.host.may_stream.store(true, Ordering::SeqCst);
    fill(&pair.source.host.keyspace, 3, 50, bytes);
    pair
}

fn views(side: &Side) -> usize {
    side.service.running().unwrap().0.views.count()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the source has reported that the transfer failed and has closed the view.
fn is_given_up(pair: &Pair) {
    assert_eq!(pair.source.event(), Event::Sent(3, TARGET, false));
    until("the view is closed", || views(&pair.source) == 0);
}

#[test]
fn rows_arrive_as_files_that_the_source_never_stored() {
    let pair = pair_with(limits(), limits(), 7 * MIB);
    // The source has no room for a copy of the rows.
    pair.source.host.room.store(0, Ordering::SeqCst);
    let message = pair.make(3);
    assert_eq!(views(&pair.source), 1);
    // What is written from now on is not in the snapshot.
    let expected = rows_of(&pair.source.host.keyspace, 3);
    fill(&pair.source.host.keyspace, 3, 60, 9 * MIB);
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    let (source, target) = (pair.source.counts(), pair.target.counts());
    assert_eq!((source.made, source.made_bytes, source.sent), (1, 0, 1));
    assert!(source.sent_bytes > 7 * MIB as u64);
    assert_eq!((target.received, target.received_bytes, target.resumed), (1, source.sent_bytes, 0));
    assert!(is_empty(&pair.made()));
    until("the view is closed", || views(&pair.source) == 0);

    let slots = [descriptor_of(3).slots.unwrap()];
    pair.target.service.ingest(&descriptor_of(3), 50, 5, &slots).unwrap();
    assert_eq!(rows_of(&pair.target.host.keyspace, 3), expected);
    until_empty(&pair.received());
}

#[test]
fn a_stream_that_breaks_off_goes_on_behind_the_last_whole_file() {
    let pair = pair_with(limits(), limits(), 8 * MIB);
    let message = pair.make(3);
    // The receiver's greeting, `go` and at least seven `taken`. The first file takes five, so the
    // receiver has it when the first connection breaks.
    const PLACE_FRAME_BYTES: usize = 4 + 1 + 4 + 8;
    let faults = [
        Fault::CutBackAfter(15 * PLACE_FRAME_BYTES),
        Fault::CutAfter(10),
        Fault::FlipAt(MIB + MIB / 2),
        Fault::CutAfter(2 * MIB),
    ];
    *pair.source.host.target.lock() = Some(proxy(pair.target.address, &faults));
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    let target = pair.target.counts();
    assert_eq!((target.received, target.damaged), (1, 1));
    assert!(target.resumed >= 1, "{target:?}");
    let manifest = Manifest::read(&pair.received().join("3-50-5")).unwrap();
    let twice = target.received_bytes - manifest.bytes();
    assert!(twice <= 4 * 3 * MIB as u64 + MIB as u64, "{twice} of {target:?}");
    pair.ingest(3, &message);
}

#[test]
fn a_store_that_starts_again_in_the_middle_keeps_its_whole_files() {
    let slow = Limits { rate: 8 * MIB as u64, ..limits() };
    let pair = pair_with(limits(), slow, 12 * MIB);
    let message = pair.make(3);
    pair.source.service.send(3, TARGET, message.clone());
    let second = pair.received().join("3-50-5").join(Manifest::file_name(1));
    until("two files are here", || second.exists());
    let Pair { source, target, dir } = pair;
    drop(target);
    let target = start(&dir.path().join("target"), TARGET, limits(), None);
    *source.host.target.lock() = Some(target.address);
    let pair = Pair { source, target, dir };
    pair.arrives(3, &message);
    let counts = pair.target.counts();
    assert_eq!((counts.received, counts.resumed), (1, 1));
    assert!(counts.received_bytes < 9 * MIB as u64, "{counts:?}");
    pair.ingest(3, &message);
}

#[test]
fn a_slow_receiver_slows_the_builder_down() {
    let pair = pair_with(limits(), Limits { rate: 10 * MIB as u64, ..limits() }, 20 * MIB);
    let message = pair.make(3);
    pair.source.service.send(3, TARGET, message.clone());
    let mut most = 0;
    until("everything is received", || {
        let received = pair.target.counts().received_bytes;
        most = most.max(pair.source.counts().sent_bytes.saturating_sub(received));
        pair.target.counts().received == 1
    });
    assert!(most > WINDOW_BYTES as u64 / 2, "{most}: the sender is ahead");
    // The first count is read before the second, so a piece may lie between them.
    assert!(most <= (WINDOW_BYTES + 2 * DATA_BYTES_MAX) as u64, "{most}");
    pair.arrives(3, &message);
}

#[test]
fn sending_keeps_to_the_rate() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(FakeClock::default());
    let one = Limits { streams: 1, rate: MIB as u64, ..limits() };
    let source = start_with(&dir.path().join("source"), SOURCE, one, None, clock.clone());
    let target = start(&dir.path().join("target"), TARGET, limits(), None);
    *source.host.target.lock() = Some(target.address);
    source.host.may_stream.store(true, Ordering::SeqCst);
    let pair = Pair { source, target, dir };
    fill(&pair.source.host.keyspace, 3, 50, 6 * MIB);
    let message = pair.make(3);
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    let expected = Duration::from_secs_f64(pair.source.counts().sent_bytes as f64 / MIB as f64);
    let saved = Duration::from_millis(51);
    let took = clock.now();
    assert!(took + saved >= expected && took <= expected + saved, "{took:?} of {expected:?}");
}

#[test]
fn two_receivers_at_once_share_a_view() {
    let pair = pair_with(Limits { streams: 2, ..limits() }, limits(), 7 * MIB);
    let third = start(&pair.dir.path().join("third"), 3, limits(), None);
    pair.source.host.others.lock().insert(3, third.address);
    let message = pair.make(3);
    pair.source.service.send(3, TARGET, message.clone());
    pair.source.service.send(3, 3, message.clone());
    for side in [&pair.target, &third] {
        assert_eq!(side.event(), Event::Delivered(SOURCE, 3, message.clone()));
    }
    let mut sent = [pair.source.event(), pair.source.event()];
    sent.sort_by_key(|event| matches!(event, Event::Sent(3, 3, true)));
    assert_eq!(sent, [Event::Sent(3, TARGET, true), Event::Sent(3, 3, true)]);
    assert_eq!(pair.source.counts().made, 1);
    let slots = [descriptor_of(3).slots.unwrap()];
    for side in [&pair.target, &third] {
        side.service.ingest(&descriptor_of(3), 50, 5, &slots).unwrap();
        assert_eq!(rows_of(&side.host.keyspace, 3), rows_of(&pair.source.host.keyspace, 3));
    }
    until("the view is closed", || views(&pair.source) == 0);
}

/// Accepts the connection of a stream, answers that it may begin, and returns it.
fn accept_a_stream(listener: &TcpListener) -> Wire {
    let stream = accept_in_silence(listener);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut wire = Wire::new(PeerSocket { socket: stream, tls: None }, BytesMut::new());
    // The proof that follows the hello is as long as it is, and an offer follows.
    while !matches!(wire.receive(), Ok(Frame::Stream { .. })) {}
    wire
}

#[test]
fn a_receiver_that_stands_still_ends_the_transfer_and_frees_the_view() {
    let impatient =
        Limits { patience: Duration::from_millis(300), turn: Duration::from_millis(300), ..limits() };
    for answers in [false, true] {
        let pair = pair_with(impatient.clone(), limits(), 20 * MIB);
        let message = pair.make(3);
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        *pair.source.host.target.lock() = Some(silent.local_addr().unwrap());
        pair.source.service.send(3, TARGET, message);
        let stands = std::thread::spawn(move || {
            if !answers {
                return (Some(accept_in_silence(&silent)), None);
            }
            let mut wire = accept_a_stream(&silent);
            wire.send(&Frame::Go(Place::default())).unwrap();
            (None, Some(wire))
        });
        is_given_up(&pair);
        drop(stands.join().unwrap());
    }
}

#[test]
fn a_view_that_no_store_asks_for_is_closed_and_no_longer_sent() {
    let pair = pair_with(Limits { unclaimed: Duration::from_millis(50), ..limits() }, limits(), MIB);
    let message = pair.make(3);
    until("the view is closed", || views(&pair.source) == 0);
    pair.source.service.send(3, TARGET, message.clone());
    is_given_up(&pair);
    let again = pair.make(3);
    pair.source.service.send(3, TARGET, again.clone());
    pair.arrives(3, &again);
}

#[test]
fn a_store_that_no_longer_leads_or_has_the_region_stops_sending() {
    for is_forgotten in [false, true] {
        let pair = pair_with(limits(), Limits { rate: 4 * MIB as u64, ..limits() }, 20 * MIB);
        let message = pair.make(3);
        pair.source.service.send(3, TARGET, message);
        until("some of it is received", || pair.target.counts().received_bytes > MIB as u64);
        match is_forgotten {
            true => pair.source.service.forget(3),
            false => pair.source.host.leads.store(false, Ordering::SeqCst),
        }
        if is_forgotten {
            until("the view is closed", || views(&pair.source) == 0);
        } else {
            is_given_up(&pair);
        }
        assert_eq!(pair.target.counts().received, 0);
        // The part is of no use to any other transfer.
        until("the connection is closed", || {
            pair.target.sweep();
            pair.target.keys().is_empty()
        });
        until_empty(&pair.received());
    }
}

#[test]
fn stopping_waits_neither_for_a_receiver_nor_for_a_request() {
    let forever =
        Limits { patience: Duration::from_secs(3600), unclaimed: Duration::from_secs(3600), ..limits() };
    let pair = pair_with(forever.clone(), forever, MIB);
    fill(&pair.source.host.keyspace, 4, 50, MIB);
    let message = pair.make(3);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    *pair.source.host.target.lock() = Some(silent.local_addr().unwrap());
    pair.source.service.send(3, TARGET, message);
    let _taken = accept_in_silence(&silent);
    pair.make(4);
    pair.source.service.stop();
    assert_eq!(pair.source.events.try_recv(), Err(mpsc::TryRecvError::Empty), "no event is sent");
    assert_eq!(Arc::strong_count(&pair.source.host), 1, "nothing holds on to the store");
}

#[test]
fn a_file_that_never_arrives_whole_is_given_up() {
    let pair = pair_with(limits(), limits(), 2 * MIB);
    let message = pair.make(3);
    let picky = TcpListener::bind("127.0.0.1:0").unwrap();
    *pair.source.host.target.lock() = Some(picky.local_addr().unwrap());
    pair.source.service.send(3, TARGET, message);
    let mut wire = accept_a_stream(&picky);
    let mut begun = 0;
    wire.send(&Frame::Go(Place::default())).unwrap();
    while let Ok(frame) = wire.receive() {
        match frame {
            Frame::Data { at, .. } if at == Place::default() => begun += 1,
            Frame::End { .. } => wire.send(&Frame::Go(Place::default())).unwrap(),
            _ => {}
        }
    }
    assert!((2..20).contains(&begun), "{begun}");
    drop(picky);
    is_given_up(&pair);
}

#[test]
fn a_stream_of_nonsense_is_refused_or_hung_up_on_and_never_whole() {
    let pair = pair_with(limits(), Limits { streams: 1, ..limits() }, MIB);
    let message = pair.make(3);
    let offer = |region, message: &eraftpb::Message| Frame::Stream {
        attempt: 1,
        region,
        estimate: 0,
        message: protobuf::Message::write_to_bytes(message).unwrap().into(),
    };
    let connect = || Wire::new(connect_as(9, &pair.target), BytesMut::new());
    let mut no_region = message.clone();
    no_region.mut_snapshot().data = Bytes::from_static(b"x");
    let mut no_snapshot = message.clone();
    no_snapshot.set_msg_type(MessageType::MsgHeartbeat);
    for offer in [offer(4, &message), offer(3, &no_region), offer(3, &no_snapshot)] {
        let mut wire = connect();
        wire.send(&offer).unwrap();
        assert!(matches!(wire.receive().unwrap(), Frame::Refused { may_come_again: false, .. }));
    }
    assert!(is_empty(&pair.received()));

    let place = |file, offset| Place { file, offset };
    let bytes = || Bytes::from_static(b"not a table");
    let description = SnapshotFile { bytes: 11, sequence_at: 0, checksum: 1 };
    let end = |file| Frame::FileEnd { file, description };
    let manifest = |index, files| Frame::End {
        manifest: Manifest { descriptor: descriptor_of(3), index, term: 5, files }.encode(),
    };
    let data = Frame::data(place(0, 0), bytes());
    let mut attempts = vec![
        vec![Frame::data(place(0, 1), bytes())],
        vec![Frame::data(place(1, 0), bytes())],
        vec![Frame::data(place(0, 0), Bytes::new())],
        vec![Frame::Data { at: place(0, 0), checksum: 1, bytes: bytes() }],
        vec![end(0)],
        vec![data.clone(), end(1)],
        vec![Frame::Done],
        vec![Frame::End { manifest: bytes() }],
        vec![manifest(50, vec![])],
        vec![manifest(50, vec![description])],
        vec![manifest(51, vec![description])],
        vec![data.clone(), manifest(50, vec![description])],
    ];
    // A file that is damaged each time.
    attempts.push(vec![data.clone(), end(0), data.clone(), end(0), data, end(0)]);
    for frames in attempts {
        let mut wire = connect();
        wire.send(&offer(3, &message)).unwrap();
        assert_eq!(wire.receive().unwrap(), Frame::Go(place(0, 0)));
        // The receiver may hang up before it has everything.
        frames.iter().for_each(|frame| drop(wire.send(frame)));
        let last = loop {
            match wire.receive() {
                Ok(Frame::Taken(_) | Frame::Go(_)) => {}
                Ok(other) => break Some(other),
                Err(_) => break None,
            }
        };
        let is_refused = matches!(last, None | Some(Frame::Refused { may_come_again: false, .. }));
        assert!(is_refused, "{last:?} after {frames:?}");
    }
    assert_eq!(pair.target.counts().received, 0);
    // The only receiving thread still runs.
    pair.source.service.send(3, TARGET, message.clone());
    pair.arrives(3, &message);
    pair.ingest(3, &message);
}

#[test]
fn a_store_that_runs_out_of_room_refuses_the_rest_of_a_stream() {
    let pair = pair_with(limits(), limits(), 5 * MIB);
    let message = pair.make(3);
    // Less than the next piece needs, whatever was estimated.
    pair.target.host.room.store(100 << 10, Ordering::SeqCst);
    pair.source.service.send(3, TARGET, message.clone());
    is_given_up(&pair);
    let counts = pair.target.counts();
    assert_eq!((counts.refused, counts.received), (1, 0));
    assert!(counts.received_bytes <= MIB as u64, "{counts:?}");
    pair.target.host.room.store(u64::MAX, Ordering::SeqCst);
    let again = pair.make(3);
    pair.source.service.send(3, TARGET, again.clone());
    pair.arrives(3, &again);
}
