//! The commands that the server executes.

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
}

/// A subcommand of `CONFIG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigCommand {
    Get,
    Set,
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
    Help,
}

/// A command about the transaction of a connection, which the client's session executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

impl ServerCommand {
    /// Returns true if the command must see the effects of all commands before it on its
    /// connection.
    pub fn waits_for_earlier(self) -> bool {
        match self {
            ServerCommand::Quit
            | ServerCommand::Reset
            | ServerCommand::Client(_)
            | ServerCommand::Info
            | ServerCommand::Shutdown
            | ServerCommand::Acl(_)
            | ServerCommand::Cluster(_) => true,
            ServerCommand::Ping
            | ServerCommand::Echo
            | ServerCommand::Hello
            | ServerCommand::Auth
            | ServerCommand::Select
            | ServerCommand::ReadOnly
            | ServerCommand::ReadWrite
            | ServerCommand::Config(_)
            | ServerCommand::Time => false,
        }
    }
}
