//! Golden scripts in `tests/scripts`; `UPDATE_GOLDENFILES=1` rewrites them.
//!
//! ```text
//! stores nvm plain-ssd/80 ...   a new cluster of these devices, with 24 regions and three copies
//! load records=N threads=N seed=N operations=N
//! capacity BYTES                the capacity of every store
//! predict POLICY WORKLOAD...    prints speeds, and the layout at the end
//! rest POLICY                   prints the layout alone
//! ```

mod support;

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{Command, Runner};
use placement::Policy;
use steelyard_predict::{at_rest, predict, Question, Workload};
use support::cluster;

struct Script {
    question: Question,
}

impl Runner for Script {
    fn run(&mut self, command: &Command) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let mut out = String::new();
        match command.name.as_str() {
            "stores" => {
                let devices: Vec<String> = arguments.rest_pos().iter().map(|a| a.value.clone()).collect();
                let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
                self.question = cluster(&devices);
            }
            "load" => {
                let load = &mut self.question.load;
                load.records = arguments.lookup_parse("records")?.unwrap_or(load.records);
                load.operations = arguments.lookup_parse("operations")?.unwrap_or(load.operations);
                load.threads = arguments.lookup_parse("threads")?.unwrap_or(load.threads);
                self.question.seed = arguments.lookup_parse("seed")?.unwrap_or(self.question.seed);
            }
            "capacity" => {
                let bytes: u64 = arguments.next_pos().ok_or("bytes")?.parse()?;
                self.question.stores.iter_mut().for_each(|store| store.capacity_bytes = bytes);
            }
            "predict" => {
                let policy: Policy = arguments.next_pos().ok_or("a policy")?.parse()?;
                let workloads: Result<Vec<Workload>, String> =
                    arguments.rest_pos().iter().map(|argument| argument.value.parse()).collect();
                let prediction = predict(&self.question, policy, &workloads?)?;
                for phase in &prediction.phases {
                    writeln!(
                        out,
                        "{}: {} operations, {:.0} ops/s, mean {:.2} ms, p99 {:.2} ms, {} moves; no time left: {}",
                        phase.workload,
                        phase.operations,
                        phase.ops_per_s,
                        phase.mean_us / 1e3,
                        phase.p99_us / 1e3,
                        phase.moves,
                        phase.bound_by.join(", ")
                    )?;
                }
                for store in &prediction.stores {
                    writeln!(
                        out,
                        "store {} {}: leads {} of {} copies, {:.1} MB",
                        store.store,
                        store.device,
                        store.leaders,
                        store.peers,
                        store.bytes as f64 / 1e6
                    )?;
                }
            }
            "rest" => {
                let policy: Policy = arguments.next_pos().ok_or("a policy")?.parse()?;
                let rested = at_rest(&self.question, policy)?;
                writeln!(out, "{} operators", rested.operators.len())?;
                for region in &rested.view.regions {
                    let leader = region.leader.ok_or("a leader")?;
                    let others: Vec<String> = region
                        .peers
                        .iter()
                        .filter(|peer| peer.store != leader)
                        .map(|peer| peer.store.to_string())
                        .collect();
                    writeln!(out, "{}: {leader} {}", region.id, others.join(" "))?;
                }
            }
            other => return Err(format!("unknown command {other}").into()),
        }
        arguments.reject_rest()?;
        Ok(out)
    }
}

#[test]
fn unequal_stores() {
    goldenscript::run(&mut Script { question: cluster(&["nvm"]) }, "tests/scripts/unequal_stores").unwrap();
}

#[test]
fn full_stores() {
    goldenscript::run(&mut Script { question: cluster(&["nvm"]) }, "tests/scripts/full_stores").unwrap();
}

#[test]
fn equal_stores() {
    goldenscript::run(&mut Script { question: cluster(&["nvm"]) }, "tests/scripts/equal_stores").unwrap();
}
