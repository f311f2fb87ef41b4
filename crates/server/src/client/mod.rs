//! Clients: listening, one task per connection, pipelines, and the commands that a server answers itself.

mod admin_commands;
mod batch;
mod cluster_commands;
mod connection;
mod info;
mod listener;
pub mod memory;
mod replies;
mod server_commands;
mod session;
mod spanning;

pub use listener::listen;
pub use session::{Clients, Door};
