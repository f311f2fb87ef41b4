use super::*;
use crate::client_memory::ClientMemory;
use crate::output_limits::{OutputLimit, OutputLimits};
use mailbox::Overfull;

const MOST: u64 = 1 << 20;

fn pubsub() -> PubSub {
    PubSub::new(MessageMemory::new(ClientMemory::new(1 << 30), MOST))
}

fn taken(subscriber: &Subscriber) -> Vec<u8> {
    let mut bytes = Vec::new();
    let take = |message: &Message| {
        message.parts(|part| bytes.extend_from_slice(part));
        true
    };
    subscriber.take(take).expect("the subscriber has read");
    bytes
}

fn publish(pubsub: &PubSub, channel: &'static str, payload: Vec<u8>) -> usize {
    pubsub.publish(ChannelKind::Channel, &channel.into(), &payload.into())
}

#[test]
fn subscribers_of_the_channel_and_of_matching_patterns_get_a_message_in_their_protocol() {
    let pubsub = pubsub();
    let [two, three, other] = [1, 2, 3].map(Subscriber::new);
    three.set_resp3(true);
    assert_eq!(publish(&pubsub, "a", b"nobody".to_vec()), 0);
    assert_eq!(pubsub.subscribe(&two, ChannelKind::Channel, &"a".into()), Some(1));
    assert_eq!(pubsub.subscribe(&two, ChannelKind::Channel, &"a".into()), Some(1));
    assert_eq!(pubsub.subscribe(&two, ChannelKind::Pattern, &"?".into()), Some(2));
    assert_eq!(pubsub.subscribe(&two, ChannelKind::Shard, &"a".into()), Some(1));
    pubsub.subscribe(&three, ChannelKind::Channel, &"a".into());
    pubsub.subscribe(&other, ChannelKind::Channel, &"b".into());
    assert_eq!(publish(&pubsub, "a", b"x".to_vec()), 3);
    assert_eq!(
        taken(&two),
        b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n*4\r\n$8\r\npmessage\r\n$1\r\n?\r\n$1\r\na\r\n$1\r\nx\r\n"
    );
    assert_eq!(taken(&three), b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n");
    assert!(!other.has_mail());
    assert_eq!(pubsub.publish(ChannelKind::Shard, &"a".into(), &"s".into()), 1);
    assert_eq!(taken(&two), b"*3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$1\r\ns\r\n");
    assert_eq!(pubsub.totals(), (2, 1, 1));
    [two, three, other].iter().for_each(|subscriber| pubsub.leave(subscriber));
    assert_eq!((pubsub.totals(), pubsub.has_subscribers()), ((0, 0, 0), false));
}

#[test]
fn a_message_is_held_once_for_all_receivers_until_the_last_has_taken_it() {
    let pubsub = pubsub();
    let subscribers: Vec<_> = (0..100).map(Subscriber::new).collect();
    for subscriber in &subscribers {
        pubsub.subscribe(subscriber, ChannelKind::Channel, &"a".into());
    }
    let payload = Bytes::from(vec![b'x'; 300_000]);
    pubsub.publish(ChannelKind::Channel, &"a".into(), &payload);
    assert!((300_000..301_000).contains(&pubsub.memory().used()));
    for subscriber in &subscribers {
        let mut is_shared = false;
        let take = |message: &Message| {
            message.parts(|part| is_shared |= part.as_ptr() == payload.as_ptr());
            true
        };
        subscriber.take(take).unwrap();
        assert!(is_shared);
    }
    assert_eq!(pubsub.memory().used(), 0);
}

fn limit(pubsub: &PubSub, pubsub_limit: OutputLimit) {
    pubsub.memory().clients().set_limits(OutputLimits { pubsub: pubsub_limit, ..OutputLimits::default() });
}

#[test]
fn a_subscriber_that_does_not_read_ends_at_its_limit_and_holds_nothing() {
    let pubsub = pubsub();
    limit(&pubsub, OutputLimit { hard_bytes: 10_000, ..OutputLimit::NONE });
    let (slow, fast) = (Subscriber::new(1), Subscriber::new(2));
    for subscriber in [&slow, &fast] {
        pubsub.subscribe(subscriber, ChannelKind::Channel, &"a".into());
    }
    for _ in 0..20 {
        publish(&pubsub, "a", vec![b'x'; 1000]);
        assert!(taken(&fast).len() > 1000);
    }
    assert!(matches!(slow.take(|_| true), Err(Overfull)));
    assert_eq!((slow.waiting(), pubsub.memory().used()), ((0, 0), 0));
}

#[test]
fn a_subscriber_may_exceed_the_soft_limit_for_its_time_only() {
    let pubsub = pubsub();
    let soft_time = std::time::Duration::from_secs(3600);
    limit(&pubsub, OutputLimit { hard_bytes: 0, soft_bytes: 10_000, soft_time });
    let slow = Subscriber::new(1);
    pubsub.subscribe(&slow, ChannelKind::Channel, &"a".into());
    for _ in 0..20 {
        publish(&pubsub, "a", vec![b'x'; 1000]);
    }
    assert!(slow.take(|_| false).is_ok());
    let soft_time = std::time::Duration::ZERO;
    limit(&pubsub, OutputLimit { hard_bytes: 0, soft_bytes: 10_000, soft_time });
    publish(&pubsub, "a", vec![b'x'; 1000]);
    assert!(slow.take(|_| true).is_err());
}

#[test]
fn many_slow_subscribers_together_stay_within_the_share_of_messages() {
    let pubsub = pubsub();
    let slow: Vec<_> = (0..200).map(Subscriber::new).collect();
    let names: Vec<Bytes> = (0..200).map(|number| format!("c{number}").into()).collect();
    for (subscriber, name) in slow.iter().zip(&names) {
        pubsub.subscribe(subscriber, ChannelKind::Channel, name);
    }
    let payload = Bytes::from(vec![b'x'; 4000]);
    for _ in 0..50 {
        for name in &names {
            pubsub.publish(ChannelKind::Channel, name, &payload);
            assert!(pubsub.memory().used() < 3 * MOST);
        }
    }
    assert!(slow.iter().any(|subscriber| subscriber.take(|_| false).is_err()));
}

#[test]
fn shard_subscriptions_end_with_the_leadership_of_their_slot() {
    let pubsub = pubsub();
    let subscriber = Subscriber::new(1);
    for name in ["a", "b"] {
        pubsub.subscribe(&subscriber, ChannelKind::Shard, &name.into());
    }
    let gone = types::slot_of_key(b"a");
    pubsub.end_shards(|slot| slot == gone);
    assert_eq!(taken(&subscriber), b"*3\r\n$12\r\nsunsubscribe\r\n$1\r\na\r\n:1\r\n");
    assert_eq!(pubsub.channels(ChannelKind::Shard, None), ["b"]);
    assert!(subscriber.is_subscribed());
}
