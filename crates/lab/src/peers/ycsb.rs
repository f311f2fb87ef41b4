//! go-ycsb: one client program for both Steelyard (as a Redis cluster) and etcd.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, ensure, Context};

use super::servers::installed;
use super::Sample;

const MODULE: &str = "github.com/pingcap/go-ycsb";
const VERSION: &str = "v1.0.1";

/// Returns the path of the program and builds it on first use. `None` if Go is not installed.
pub fn program(tools: &Path) -> anyhow::Result<Option<PathBuf>> {
    let binary = std::path::absolute(tools)?.join("go-ycsb");
    if binary.is_file() {
        return Ok(Some(binary));
    }
    let Some(go) = installed("go") else { return Ok(None) };
    super::say("building go-ycsb (once, a few minutes)");
    let source = tempfile::tempdir()?;
    std::fs::create_dir_all(tools)?;
    std::fs::write(source.path().join("go.mod"), "module tools\n\ngo 1.21\n")?;
    let require = format!("-require={MODULE}@{VERSION}");
    let package = format!("{MODULE}/cmd/go-ycsb");
    // Build elsewhere and move the file: an interrupted build must not leave a partial program.
    let partial = source.path().join("go-ycsb");
    let partial = partial.to_str().context("the temporary directory has an odd name")?;
    for arguments in [vec!["mod", "edit", &require], vec!["build", "-mod=mod", "-o", partial, &package]] {
        let mut command = Command::new(&go);
        let output = client::process::output(command.current_dir(source.path()).args(&arguments))?;
        ensure!(
            output.status.success(),
            "go {} failed: {}",
            arguments[0],
            String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("no reason given")
        );
    }
    let staged = binary.with_extension("new");
    std::fs::copy(partial, &staged)?;
    std::fs::rename(&staged, &binary)?;
    Ok(Some(binary))
}

pub enum Target<'a> {
    /// Stores in cluster mode. Records are stored as strings, encoded as etcd's driver encodes
    /// them.
    Stores(&'a [SocketAddr]),
    Etcd(&'a [SocketAddr]),
    /// One server with the command SET. Records are encoded in the same way.
    One(SocketAddr),
}

pub struct Inserts {
    pub clients: usize,
    pub count: usize,
    /// The number of the first record. Every run inserts new keys.
    pub first: usize,
}

/// Inserts records with one field of 1 KiB.
pub async fn insert(
    program: &Path,
    target: Target<'_>,
    inserts: &Inserts,
    round: usize,
) -> anyhow::Result<Sample> {
    let addresses = |list: &[SocketAddr], separator: &str| {
        list.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
    };
    let mut command = Command::new(program);
    let mut properties = vec![
        "workload=core".to_owned(),
        format!("recordcount={}", inserts.first + inserts.count),
        format!("insertstart={}", inserts.first),
        format!("insertcount={}", inserts.count),
        format!("threadcount={}", inserts.clients),
        "fieldcount=1".to_owned(),
        "fieldlength=1024".to_owned(),
        // Progress lines would be parsed as results.
        "measurement.interval=3600".to_owned(),
    ];
    match target {
        Target::Stores(list) => {
            command.args(["load", "redis"]);
            properties.extend(["redis.mode=cluster".to_owned(), "redis.datatype=string".to_owned()]);
            properties.push(format!("redis.addr={}", addresses(list, ";")));
            properties.push("redis.max_redirects=8".to_owned());
        }
        Target::One(address) => {
            command.args(["load", "redis"]);
            properties.extend(["redis.mode=single".to_owned(), "redis.datatype=string".to_owned()]);
            properties.push(format!("redis.addr={address}"));
        }
        Target::Etcd(list) => {
            command.args(["load", "etcd"]);
            properties.push(format!("etcd.endpoints={}", addresses(list, ",")));
        }
    }
    properties.iter().for_each(|property| {
        command.args(["-p", property]);
    });
    let output = tokio::task::spawn_blocking(move || client::process::output(&mut command)).await??;
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let tail = || text.lines().rev().take(3).collect::<Vec<_>>().join(" / ");
    ensure!(output.status.success(), "go-ycsb failed: {}", tail());
    if let Some(line) = text.lines().find(|line| line.starts_with("INSERT_ERROR")) {
        bail!("go-ycsb met errors, so its figures mean nothing: {line}");
    }
    let (sample, count) =
        parse(&text, "INSERT", round).with_context(|| format!("go-ycsb said: {}", tail()))?;
    ensure!(count == inserts.count as u64, "go-ycsb inserted {count} of {} records", inserts.count);
    Ok(sample)
}

/// Parses the last line of an operation: `INSERT - Takes(s): 0.8, Count: 20000, OPS: 26328.8,
/// Avg(us): 2359, ..., 99th(us): 7755, ...`
pub(crate) fn parse(text: &str, operation: &str, round: usize) -> Option<(Sample, u64)> {
    let of_operation =
        |line: &&str| line.strip_prefix(operation).is_some_and(|rest| rest.trim_start().starts_with("- "));
    let line = text.lines().rev().find(of_operation)?;
    let (_, fields) = line.split_once(" - ")?;
    let of = |name: &str| {
        let pairs = fields.split(", ").filter_map(|pair| pair.split_once(": "));
        pairs.filter(|(known, _)| *known == name).find_map(|(_, value)| value.trim().parse::<f64>().ok())
    };
    let sample = Sample {
        round,
        per_second: of("OPS")?,
        mean_us: of("Avg(us)")?,
        p99_us: of("99th(us)")?,
        cpu_us_per_operation: None,
        syncs_per_operation: None,
    };
    Some((sample, of("Count")? as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_result_line_counts() {
        let text = "INSERT - Takes(s): 1.0, Count: 5, OPS: 5.0, Avg(us): 9, 99th(us): 9\n\
                    Run finished, takes 767.009456ms\n\
                    INSERT - Takes(s): 0.8, Count: 20000, OPS: 26328.8, Avg(us): 2359, Min(us): 22, 99th(us): 7755, 99.9th(us): 11143\n\
                    TOTAL  - Takes(s): 0.8, Count: 20000, OPS: 26324.6, Avg(us): 2359, 99th(us): 7755\n";
        let (sample, count) = parse(text, "INSERT", 1).unwrap();
        assert_eq!(
            (sample.per_second, sample.mean_us, sample.p99_us, count),
            (26328.8, 2359.0, 7755.0, 20000)
        );
        assert_eq!(parse(text, "TOTAL", 1).unwrap().0.per_second, 26324.6);
        assert!(parse("nothing", "INSERT", 0).is_none());
    }
}
