//! Clients: listeners, and the commands that a store answers from its own state.
//!
//! `node::session` defines a client's session; the loops in `reactor` run it.

mod acl_commands;
mod admin_commands;
mod aside;
mod audit;
mod cluster_commands;
mod debug_commands;
mod function_commands;
mod info;
mod listener;
mod memory_commands;
mod other_stores;
mod pubsub_commands;
mod read_only;
mod script_commands;
mod server_commands;
mod spanning;
mod statistics_commands;
mod thresholds;
mod tracking_commands;
mod wait;

use std::sync::Arc;

use bytes::Bytes;
use node::session::{Caching, Context, Replies};
use resp::Protocol;

use crate::access::Access;
use crate::connections::{ClientEntry, ListenerKind};
use crate::pubsub::PubSub;

pub use acl_commands::refusal;
pub use debug_commands::refusal as debugging_refusal;
pub use listener::listen;
pub use pubsub_commands::keep_shards;
pub use server_commands::{run as run_own, run_later as run_own_later};
pub use tracking_commands::keep_tracked;

/// Reads the arguments of commands on the connection.
pub fn fuzz(args: &[Bytes]) {
    let _ = read_only::max_lag(args, None);
    if args.len() == 3 {
        let _ = wait::parse(args);
    }
}

/// A connection, as seen and changed by the store's own commands.
pub struct Connected<'a> {
    pub context: &'a mut Context,
    pub entry: &'a Arc<ClientEntry>,
    /// The kind of port to which the client connected.
    pub kind: ListenerKind,
}

impl Connected<'_> {
    /// Restores the initial state of the session, for RESET.
    pub fn reset(&mut self, access: &Access, pubsub: &PubSub) {
        pubsub.leave(&self.entry.subscriber);
        self.entry.subscriber.set_resp3(false);
        self.entry.subscriber.set_tracking(None, false);
        self.context.is_subscriber = false;
        self.context.caching = Caching::Off;
        self.context.replies = Replies::On;
        self.context.is_monitor = false;
        self.context.protocol = Protocol::Resp2;
        self.context.db = 0;
        self.context.read_only = false;
        self.context.max_lag = None;
        access.log_out(self.entry, self.context);
        self.entry.describe(|d| d.name = Bytes::new());
    }
}
