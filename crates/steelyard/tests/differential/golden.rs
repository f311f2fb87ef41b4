//! Runs the golden scripts of `command` against `redis-server`. It must give the answers that they
//! expect.

use std::error::Error;
use std::path::Path;

use crate::connection::Connection;
use crate::render::{arguments, render};
use crate::servers::redis;

struct Redis {
    client: Connection,
    resp3: bool,
}

impl goldenscript::Runner for Redis {
    fn run(&mut self, command: &goldenscript::Command) -> Result<String, Box<dyn Error>> {
        let resp3 = command.tags.contains("resp3");
        if resp3 != self.resp3 {
            self.client.call(&["HELLO", if resp3 { "3" } else { "2" }])?;
            self.resp3 = resp3;
        }
        // A map in RESP2 is an array of twice the length. The scripts show it as a map.
        let maps = ["HGETALL", "LCS"].contains(&command.name.as_str());
        if maps && !resp3 {
            self.client.call(&["HELLO", "3"])?;
        }
        let reply = self.client.call(&arguments(command))?;
        if maps && !resp3 {
            self.client.call(&["HELLO", "2"])?;
        }
        Ok(render(&reply, command.tags.contains("sorted")))
    }

    fn end_script(&mut self) -> Result<(), Box<dyn Error>> {
        self.client.call(&["FLUSHALL"])?;
        Ok(())
    }
}

#[test]
fn redis_gives_the_answers_of_the_golden_scripts() {
    let Some(redis) = redis(&[]) else { return };
    let folder =
        Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells where the package is"))
            .join("../command/tests/golden/scripts");
    let mut differing = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the scripts are there") {
        let path = entry.expect("the scripts are there").path();
        let script = std::fs::read_to_string(&path).expect("the script is readable");
        let mut runner = Redis { client: redis.connect(), resp3: false };
        let answered = goldenscript::generate(&mut runner, &script)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines = script.lines().zip(answered.lines()).enumerate();
        let first = lines.into_iter().find(|(_, (expected, answered))| expected != answered);
        if let Some((at, (expected, answered))) = first {
            differing.push(format!(
                "{}:{}\n  expected: {expected}\n  redis:    {answered}",
                path.display(),
                at + 1
            ));
        } else if script != answered {
            differing.push(format!("{}: another length", path.display()));
        }
    }
    assert!(differing.is_empty(), "\n{}", differing.join("\n"));
}
