//! Modes of a connection that `CLIENT` sets for the next commands.

/// The reads of a connection whose keys the client may cache, so that it must be told of their
/// changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    #[default]
    Off,
    All,
    /// None but the one after `CLIENT CACHING YES`.
    OptIn,
    /// All but the one after `CLIENT CACHING NO`.
    OptOut,
    /// The next command, or not.
    Next {
        yes: bool,
    },
}

impl Caching {
    pub(super) fn tracks(self) -> bool {
        matches!(self, Caching::All | Caching::OptOut | Caching::Next { yes: true })
    }

    /// Returns the mode after a command, or after a transaction.
    pub(super) fn after_command(self) -> Caching {
        match self {
            Caching::Next { yes: true } => Caching::OptIn,
            Caching::Next { yes: false } => Caching::OptOut,
            other => other,
        }
    }
}

/// The replies that a connection gets, as `CLIENT REPLY` sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replies {
    #[default]
    On,
    Off,
    /// `CLIENT REPLY SKIP` is being executed.
    SkipNext,
    /// The command after it is being executed.
    Skip,
}

impl Replies {
    pub(super) fn after_command(self) -> Replies {
        match self {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            other => other,
        }
    }
}
