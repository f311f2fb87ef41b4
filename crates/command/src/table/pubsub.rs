//! Table entries of the commands on channels.

use crate::introspect;
use crate::server_command::{ChannelKind, PubSubCommand, ServerCommand};
use crate::spec::{flags, CommandSpec, Handler, KeySpec};

const SUBSCRIPTION: u32 = flags::PUBSUB | flags::NOSCRIPT | flags::ANYTIME;
const PUBLICATION: u32 = flags::PUBSUB | flags::ANYTIME | flags::FAST;
/// Shard channels are routed like keys.
const SHARD_CHANNELS: &[KeySpec] = &[KeySpec { first: 1, last: -1, step: 1, flags: &["not_key"] }];
const SHARD_CHANNEL: &[KeySpec] = &[KeySpec { first: 1, last: 0, step: 1, flags: &["not_key"] }];

const fn subscribe(kind: ChannelKind) -> Handler {
    Handler::Server(ServerCommand::Subscribe(kind))
}

const fn unsubscribe(kind: ChannelKind) -> Handler {
    Handler::Server(ServerCommand::Unsubscribe(kind))
}

const fn publish(kind: ChannelKind) -> Handler {
    Handler::Server(ServerCommand::Publish(kind))
}

pub(super) static COMMANDS: [CommandSpec; 9] = [
    CommandSpec::new("subscribe", -2, SUBSCRIPTION, subscribe(ChannelKind::Channel)).about(
        "pubsub",
        "2.0.0",
        "O(N) where N is the number of channels",
        "Subscribes to channels.",
        "channel [channel ...]",
    ),
    CommandSpec::new("unsubscribe", -1, SUBSCRIPTION, unsubscribe(ChannelKind::Channel)).about(
        "pubsub",
        "2.0.0",
        "O(N) where N is the number of channels",
        "Ends subscriptions to channels, or all of them.",
        "[channel [channel ...]]",
    ),
    CommandSpec::new("psubscribe", -2, SUBSCRIPTION, subscribe(ChannelKind::Pattern)).about(
        "pubsub",
        "2.0.0",
        "O(N) where N is the number of patterns",
        "Subscribes to all channels that match a pattern.",
        "pattern [pattern ...]",
    ),
    CommandSpec::new("punsubscribe", -1, SUBSCRIPTION, unsubscribe(ChannelKind::Pattern)).about(
        "pubsub",
        "2.0.0",
        "O(N) where N is the number of patterns",
        "Ends subscriptions to patterns, or all of them.",
        "[pattern [pattern ...]]",
    ),
    CommandSpec::new("ssubscribe", -2, SUBSCRIPTION, subscribe(ChannelKind::Shard))
        .keys(SHARD_CHANNELS)
        .about(
            "pubsub",
            "7.0.0",
            "O(N) where N is the number of channels",
            "Subscribes to shard channels.",
            "shardchannel [shardchannel ...]",
        ),
    CommandSpec::new("sunsubscribe", -1, SUBSCRIPTION, unsubscribe(ChannelKind::Shard))
        .keys(SHARD_CHANNELS)
        .about(
            "pubsub",
            "7.0.0",
            "O(N) where N is the number of channels",
            "Ends subscriptions to shard channels, or all of them.",
            "[shardchannel [shardchannel ...]]",
        ),
    CommandSpec::new("publish", 3, PUBLICATION, publish(ChannelKind::Channel)).counts_as_write().about(
        "pubsub",
        "2.0.0",
        "O(N+M) where N is the number of receivers and M the number of patterns of all clients",
        "Sends a message to the subscribers of a channel.",
        "channel message",
    ),
    CommandSpec::new("spublish", 3, PUBLICATION, publish(ChannelKind::Shard))
        .counts_as_write()
        .keys(SHARD_CHANNEL)
        .about(
            "pubsub",
            "7.0.0",
            "O(N) where N is the number of receivers",
            "Sends a message to the subscribers of a shard channel.",
            "shardchannel message",
        ),
    CommandSpec::new("pubsub", -2, flags::NONE, Handler::Container).subcommands(&PUBSUB).about(
        "pubsub",
        "2.8.0",
        "Depends on subcommand",
        "Inspects the subscriptions.",
        "",
    ),
];

const fn pubsub(command: PubSubCommand) -> Handler {
    Handler::Server(ServerCommand::PubSub(command))
}

const INSPECTION: u32 = flags::PUBSUB | flags::ANYTIME;

static PUBSUB: [CommandSpec; 6] = [
    CommandSpec::new("pubsub|channels", -2, INSPECTION, pubsub(PubSubCommand::Channels)).about(
        "pubsub",
        "2.8.0",
        "O(N) where N is the number of channels",
        "Lists the channels that have subscribers.",
        "[pattern]",
    ),
    CommandSpec::new("pubsub|numsub", -2, INSPECTION, pubsub(PubSubCommand::NumSub)).about(
        "pubsub",
        "2.8.0",
        "O(N) where N is the number of channels",
        "Counts the subscribers of channels, without those of patterns.",
        "[channel [channel ...]]",
    ),
    CommandSpec::new("pubsub|numpat", 2, INSPECTION, pubsub(PubSubCommand::NumPat)).about(
        "pubsub",
        "2.8.0",
        "O(1)",
        "Counts the patterns that have subscribers.",
        "",
    ),
    CommandSpec::new("pubsub|shardchannels", -2, INSPECTION, pubsub(PubSubCommand::ShardChannels)).about(
        "pubsub",
        "7.0.0",
        "O(N) where N is the number of shard channels",
        "Lists the shard channels that have subscribers.",
        "[pattern]",
    ),
    CommandSpec::new("pubsub|shardnumsub", -2, INSPECTION, pubsub(PubSubCommand::ShardNumSub)).about(
        "pubsub",
        "7.0.0",
        "O(N) where N is the number of shard channels",
        "Counts the subscribers of shard channels.",
        "[shardchannel [shardchannel ...]]",
    ),
    CommandSpec::new("pubsub|help", 2, flags::ANYTIME, Handler::Table(introspect::help)).about(
        "pubsub",
        "6.2.0",
        "O(1)",
        "Lists the subcommands.",
        "",
    ),
];
