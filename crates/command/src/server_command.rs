//! The commands that the server executes.

use crate::scripting::ScriptCall;

/// A command about connections, settings, the cluster or the server itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCommand {
    Ping,
    Echo,
    Hello,
    Auth,
    Select,
    Quit,
    Reset,
    Client(ClientCommand),
    ReadOnly,
    ReadWrite,
    Info,
    Config(ConfigCommand),
    Time,
    Shutdown,
    Cluster(ClusterCommand),
    Acl(AclCommand),
    Subscribe(ChannelKind),
    Unsubscribe(ChannelKind),
    /// Publishes to a channel or a shard channel.
    Publish(ChannelKind),
    PubSub(PubSubCommand),
    Monitor,
    Script(ScriptCommand),
    Function(FunctionCommand),
    SlowLog(SlowLogCommand),
    Latency(LatencyCommand),
    Memory(MemoryCommand),
    ModuleList,
    Role,
    Wait,
    WaitAof,
    Save,
    /// `BGSAVE` and `BGREWRITEAOF`.
    BgSave,
    LastSave,
    Asking,
    /// `DEBUG`, with its subcommand.
    Debug,
}

/// A subcommand of `MEMORY` about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCommand {
    Doctor,
    MallocStats,
    Purge,
    Stats,
}

/// A subcommand of `SLOWLOG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowLogCommand {
    Get,
    Len,
    Reset,
}

/// A subcommand of `LATENCY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyCommand {
    Doctor,
    Graph,
    Histogram,
    History,
    Latest,
    Reset,
}

/// The three kinds of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChannelKind {
    Channel,
    /// A pattern of channels.
    Pattern,
    /// A channel of a slot, which the store that leads the slot serves.
    Shard,
}

/// A subcommand of `PUBSUB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PubSubCommand {
    Channels,
    NumSub,
    NumPat,
    ShardChannels,
    ShardNumSub,
}

/// A subcommand of `SCRIPT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptCommand {
    Debug,
    Exists,
    Flush,
    Kill,
    Load,
}

/// A subcommand of `FUNCTION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionCommand {
    Delete,
    Dump,
    Flush,
    Kill,
    List,
    Load,
    Restore,
    Stats,
}

/// A subcommand of `ACL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclCommand {
    Cat,
    DelUser,
    DryRun,
    GenPass,
    GetUser,
    List,
    Load,
    Log,
    Save,
    SetUser,
    Users,
    WhoAmI,
}

/// A subcommand of `CLIENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCommand {
    Id,
    GetName,
    SetName,
    SetInfo,
    List,
    Info,
    Kill,
    Unblock,
    Tracking,
    TrackingInfo,
    Caching,
    GetRedir,
    Reply,
    NoEvict,
    NoTouch,
    Pause,
    Unpause,
}

/// A subcommand of `CONFIG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigCommand {
    Get,
    Set,
    Rewrite,
    ResetStat,
}

/// A subcommand of `CLUSTER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterCommand {
    Slots,
    Shards,
    Nodes,
    Info,
    KeySlot,
    MyId,
    CountKeysInSlot,
    GetKeysInSlot,
    Replicas,
    Links,
    Help,
}

/// A command that the client's session executes: about its transaction, or a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    /// The execution of a script.
    Script(ScriptCall),
}

impl ServerCommand {
    /// Returns true if the command waits for copies of the client's writes.
    pub fn waits_for_copies(self) -> bool {
        matches!(self, ServerCommand::Wait | ServerCommand::WaitAof)
    }

    /// Returns true if a client of RESP2 may use the command while it has subscriptions.
    pub fn is_for_subscribers(self) -> bool {
        matches!(
            self,
            ServerCommand::Subscribe(_)
                | ServerCommand::Unsubscribe(_)
                | ServerCommand::Ping
                | ServerCommand::Quit
                | ServerCommand::Reset
        )
    }

    /// Returns true if the command must see the effects of all commands before it on its
    /// connection.
    pub fn waits_for_earlier(self) -> bool {
        match self {
            ServerCommand::Quit
            | ServerCommand::Reset
            | ServerCommand::Client(_)
            | ServerCommand::Info
            | ServerCommand::Wait
            | ServerCommand::WaitAof
            | ServerCommand::Save
            | ServerCommand::BgSave
            | ServerCommand::SlowLog(_)
            | ServerCommand::Latency(_)
            | ServerCommand::Shutdown
            | ServerCommand::Acl(_)
            | ServerCommand::Subscribe(_)
            | ServerCommand::Unsubscribe(_)
            | ServerCommand::Publish(_)
            | ServerCommand::PubSub(_)
            | ServerCommand::Monitor
            | ServerCommand::Debug
            | ServerCommand::Cluster(_) => true,
            ServerCommand::Ping
            | ServerCommand::Echo
            | ServerCommand::Hello
            | ServerCommand::Auth
            | ServerCommand::Select
            | ServerCommand::ReadOnly
            | ServerCommand::ReadWrite
            | ServerCommand::Config(_)
            | ServerCommand::Script(_)
            | ServerCommand::Function(_)
            | ServerCommand::Memory(_)
            | ServerCommand::ModuleList
            | ServerCommand::Role
            | ServerCommand::LastSave
            | ServerCommand::Asking
            | ServerCommand::Time => false,
        }
    }
}
