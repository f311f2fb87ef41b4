//! The store as a session sees it, and what a session asks of it.

use std::sync::Arc;

use bytes::Bytes;
use command::{CommandSpec, ServerCommand};
use resp::Reply;

use super::{Context, Kind};
use crate::answer::Answer;
use crate::item::Item;

/// The destination of a command on keys.
pub enum Route<R> {
    /// To the region's leader, on this store or another one.
    Region(R),
    /// To this store's own copy of the region, if no other command of this connection to the region
    /// is unanswered; otherwise to the leader.
    Weak(R),
    /// To no region, because the answer is already known.
    Answered(Reply),
    /// To no single region, because none is known at present. The command is executed alone, after
    /// all commands before it.
    Alone,
}

/// The answer to a command that the store serves from its own state.
pub enum Own {
    Reply(Reply),
    /// Several replies, and messages to the client between them, in order. The last one is a reply.
    Several(Vec<Answer>),
    /// The executor answers later, to an [`Ask`].
    Later,
}

/// The store, as a session needs it to take commands.
pub trait Host {
    /// A handle of a region. Equal handles denote the same region.
    type Region: Clone + PartialEq;

    /// Returns true if keys have slots. Without cluster mode, one region has all of them.
    fn has_slots(&self) -> bool;

    /// Returns the error if the connection or its user may not execute a command. It is asked
    /// before the command is executed or passed on, if the user is restricted or the command is for
    /// administrators. `spec` is the command's entry.
    fn forbids(&mut self, _spec: &'static CommandSpec, _args: &[Bytes]) -> Option<Reply> {
        None
    }

    /// Returns the script with a digest in hexadecimal, if this store knows it.
    fn script(&mut self, _digest: &[u8]) -> Option<Bytes> {
        None
    }

    /// Returns the library of a function, if this store knows one with this name.
    fn function(&mut self, _name: &[u8]) -> Option<command::scripting::Code> {
        None
    }

    /// Learns a script that a client sent.
    fn note_script(&mut self, _body: &Bytes) {}

    /// Returns the permissions of the connection's user, by which the commands of a script are
    /// checked.
    fn script_rules(&mut self) -> Option<Bytes> {
        None
    }

    fn route(&mut self, context: &Context, item: &Item) -> Route<Self::Region>;

    /// Returns true if a `COPY`, `RENAME`, `SUNIONSTORE` or the like may have to be executed in
    /// parts.
    fn may_copy_much(&self, _item: &Item) -> bool {
        false
    }

    /// Returns true if no command of clients is executed at present; `may_write` says whether the
    /// command may change something.
    fn holds(&self, _may_write: bool) -> bool {
        false
    }

    /// Returns true if other clients are told of all commands.
    fn is_monitored(&self) -> bool {
        false
    }

    /// Tells other clients of a command that is executed now.
    fn monitor(&mut self, _context: &Context, _spec: &'static CommandSpec, _args: &[Bytes]) {}

    /// Notes that the client will read these keys, and may then cache them.
    fn reads(&mut self, _keys: &[Bytes]) {}

    /// Executes a command that the connection or the store serves itself. `spec` is its entry.
    fn own(
        &mut self,
        context: &mut Context,
        command: ServerCommand,
        spec: &'static CommandSpec,
        args: &[Bytes],
    ) -> Own;
}

/// A part of the session. The executor executes it and answers under the same number.
pub struct Ask<R> {
    pub number: usize,
    pub part: Part<R>,
}

pub enum Part<R> {
    /// Commands of one region, to be executed in order.
    Commands { region: R, kind: Kind, items: Arc<Vec<Item>> },
    /// A command for which no single region is known.
    Alone(Item),
    /// A command that the store serves itself: see [`Own::Later`].
    Own { command: ServerCommand, args: Vec<Bytes> },
    /// A command that may wait for elements. It is executed alone, like a command without a region.
    Blocking(Item),
    /// A command whose source may be so large that it is executed in parts.
    Copying(Item),
    /// A command that releases watches. It is executed as well as possible and not answered.
    Release(Item),
}
