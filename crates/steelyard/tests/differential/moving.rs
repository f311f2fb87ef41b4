//! The programs of the other modules against three stores in cluster mode, while leaders move and
//! regions split and merge.

use std::net::SocketAddr;

use crate::chance::Chance;
use crate::generator::Tags;
use crate::servers::Server;
use crate::session::Session;
use crate::stores::{self, Stores};

/// Number of sessions that take turns. Each has keys in another slot.
const SESSIONS: u64 = 6;
/// Number of turns between two comparisons of all data.
const TURNS_BETWEEN_AUDITS: usize = 200;

/// Gives the node all slots.
pub fn own_all_slots(redis: &Server) {
    let mut connection = redis.connect();
    connection.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).expect("a reply");
    stores::eventually("redis serves its slots", || {
        connection.call(&["GET", "key"]).ok().filter(|reply| !reply.is_error())
    });
}

/// Lets sessions of several kinds take turns at the forward ports of all stores.
///
/// # Errors
/// Returns the first mismatch with its history.
pub fn run_sessions(seed: u64, stores: &Stores, redis: SocketAddr, turns: usize) -> Result<(), String> {
    let mut sessions: Vec<Session> = (0..SESSIONS)
        .map(|number| {
            let store = &stores.all[number as usize % stores.all.len()];
            let ours = store.forward.expect("stores in cluster mode have forward ports");
            let seed = seed * SESSIONS + number;
            let session = match number % 3 {
                0 => Session::of_streams(seed, ours, redis),
                1 => Session::of_places(seed, ours, redis),
                _ => Session::new(seed, ours, redis),
            };
            session.tagged(Tags::new(format!("{{{number}}}"), redis))
        })
        .collect();
    let mut chance = Chance::new(seed);
    for turn in 1..=turns {
        let at = chance.below(sessions.len());
        sessions[at].turn()?;
        if turn % TURNS_BETWEEN_AUDITS == 0 {
            sessions[at].audit()?;
        }
    }
    sessions[0].audit()
}
