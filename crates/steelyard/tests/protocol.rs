//! The protocol over a real socket: complete and broken frames, limits, authentication, settings,
//! other clients. If Redis has an answer, `redis-server` gets the same bytes and the answers are
//! compared.

#[path = "protocol/administration.rs"]
mod administration;
#[path = "protocol/blocking.rs"]
mod blocking;
#[allow(dead_code, reason = "the differential test uses it, too")]
#[path = "differential/chance.rs"]
mod chance;
#[path = "protocol/clients.rs"]
mod clients;
#[allow(dead_code, reason = "the differential test uses it, too")]
#[path = "protocol/command_table.rs"]
mod command_table;
#[path = "differential/connection.rs"]
mod connection;
#[path = "protocol/copies.rs"]
mod copies;
#[path = "protocol/debug.rs"]
mod debug;
#[path = "protocol/facts.rs"]
mod facts;
#[path = "protocol/frames.rs"]
mod frames;
#[path = "protocol/functions.rs"]
mod functions;
#[path = "protocol/loops.rs"]
mod loops;
#[path = "protocol/no_loop.rs"]
mod no_loop;
#[path = "protocol/pubsub.rs"]
mod pubsub;
#[path = "protocol/script.rs"]
mod script;
#[path = "protocol/scripts.rs"]
mod scripts;
#[path = "differential/servers.rs"]
mod servers;
#[path = "protocol/sessions.rs"]
mod sessions;
#[path = "protocol/statistics.rs"]
mod statistics;
#[path = "protocol/transactions.rs"]
mod transactions;
