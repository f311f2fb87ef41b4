//! The programs of the other modules against three stores in cluster mode, while leaders move and
//! regions split and merge.

use std::net::SocketAddr;

use crate::chance::Chance;
use crate::generator::Tags;
use crate::large::Large;
use crate::scripts::{Called, Scripts};
use crate::servers::Server;
use crate::session::Session;
use crate::stores::{self, Stores};
use crate::transactions::{self, Transactions};
use crate::waits::Waits;

/// Number of programs that take turns. Each has keys in another slot.
const PROGRAMS: u64 = 11;
/// Number of turns between two comparisons of all data.
const TURNS_BETWEEN_AUDITS: usize = 200;
/// Numbers of steps in a turn of a program whose steps are single commands.
const COMMANDS_IN_A_TURN: usize = 12;
const WAITS_IN_A_TURN: usize = 4;
const LARGE_IN_A_TURN: usize = 2;

/// One program of the other modules.
enum Program {
    Session(Box<Session>),
    Transactions(Transactions),
    Scripts(Scripts, Called),
    Waits(Waits),
    Large(Large),
}

impl Program {
    fn turn(&mut self) -> Result<(), String> {
        match self {
            Program::Session(session) => session.turn(),
            Program::Transactions(transactions) => transactions.run(COMMANDS_IN_A_TURN),
            Program::Scripts(scripts, called) => {
                (0..COMMANDS_IN_A_TURN).try_for_each(|_| scripts.run_command(called))
            }
            Program::Waits(waits) => (0..WAITS_IN_A_TURN).try_for_each(|_| waits.step()),
            Program::Large(large) => (0..LARGE_IN_A_TURN).try_for_each(|_| large.turn()),
        }
    }
}

/// The programs have seen these numbers of transactions, of waits that ended with an element, of
/// copies in parts, and of removals from large lists and sorted sets.
#[derive(Debug, Default)]
pub struct Tally {
    pub transactions: transactions::Tally,
    pub served: usize,
    pub copied: usize,
    pub removed: usize,
}

/// Gives the node all slots.
pub fn own_all_slots(redis: &Server) {
    let mut connection = redis.connect();
    connection.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).expect("a reply");
    stores::eventually("redis serves its slots", || {
        connection.call(&["GET", "key"]).ok().filter(|reply| !reply.is_error())
    });
}

/// Lets programs of all kinds take turns at the forward ports of all stores.
///
/// # Errors
/// Returns the first mismatch with its history.
pub fn run_programs(
    seed: u64,
    stores: &Stores,
    redis: SocketAddr,
    turns: usize,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut programs: Vec<Program> = (0..PROGRAMS)
        .map(|number| {
            let store = &stores.all[number as usize % stores.all.len()];
            let ours = store.forward.expect("stores in cluster mode have forward ports");
            let seed = seed * PROGRAMS + number;
            let tag = format!("{{{number}}}");
            let tags = Tags::new(tag.clone(), redis);
            let session = |session| Program::Session(Box::new(session));
            match number {
                0 | 1 => session(Session::of_streams(seed, ours, redis).tagged(tags)),
                2 | 3 => session(Session::of_places(seed, ours, redis).tagged(tags)),
                4 | 5 => session(Session::new(seed, ours, redis).tagged(tags)),
                6 | 7 => Program::Transactions(Transactions::new(seed, ours, redis).tagged(tags)),
                8 => {
                    let scripts = Scripts::new(ours, redis, seed % 2 == 1);
                    Program::Scripts(scripts, Called::new(seed).tagged(tags))
                }
                9 => Program::Waits(Waits::new(seed, ours, redis).tagged(&tag)),
                _ => Program::Large(Large::new(seed, ours, redis, &tag)),
            }
        })
        .collect();
    let mut chance = Chance::new(seed);
    for turn in 1..=turns {
        let at = chance.below(programs.len());
        programs[at].turn()?;
        if turn % TURNS_BETWEEN_AUDITS == 0 || turn == turns {
            audit(&mut programs)?;
        }
    }
    for program in programs {
        match program {
            Program::Transactions(transactions) => tally.transactions.add(&transactions.tally),
            Program::Waits(waits) => tally.served += waits.served,
            Program::Large(large) => {
                tally.copied += large.copied;
                tally.removed += large.removed;
            }
            Program::Session(_) | Program::Scripts(..) => {}
        }
    }
    Ok(())
}

/// Compares the keys of all programs. Any session can do it.
fn audit(programs: &mut [Program]) -> Result<(), String> {
    let session = programs.iter_mut().find_map(|program| match program {
        Program::Session(session) => Some(session),
        _ => None,
    });
    session.expect("there are sessions").audit()
}
