//! The probe's writes, performed by `fio`.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Options, BLOCK};

/// Time beyond that for writing in which fio may start, finish and report.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

/// Returns the rate of random writes in bytes per second. Returns `None` if fio is missing, fails
/// or does not end in time.
pub fn write_rate(path: &Path, file_bytes: u64, options: &Options, time: Duration) -> Option<f64> {
    let jobs = options.jobs.max(1);
    let mut child = Command::new("fio")
        .args(["--name=probe", "--rw=randwrite", "--bs=8M", "--direct=1", "--ioengine=psync", "--thread"])
        .args(["--group_reporting", "--output-format=json"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--size={file_bytes}"))
        .arg(format!("--numjobs={jobs}"))
        .arg(format!("--runtime={}ms", time.as_millis().max(1)))
        .arg(format!("--io_size={}", (options.bytes_max / jobs as u64).max(BLOCK)))
        .arg(format!("--randseed={}", options.seed))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut pipe = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut report = Vec::new();
        pipe.read_to_end(&mut report).map(|_| report)
    });
    let succeeded = succeeds(&mut child, time + PATIENCE);
    let report = reader.join().ok()?.ok()?;
    succeeded.then(|| rate(&report))?
}

/// Waits for the child and returns true if it succeeds. Kills it after `time`.
fn succeeds(child: &mut Child, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

fn rate(json: &[u8]) -> Option<f64> {
    // fio may print notes before the JSON.
    let start = json.iter().position(|&byte| byte == b'{')?;
    let report: serde_json::Value = serde_json::from_slice(&json[start..]).ok()?;
    let rate = report["jobs"][0]["write"]["bw_bytes"].as_f64()?;
    (rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_and_anything_else_is_not() {
        let report = br#"fio: note {"jobs":[{"write":{"bw_bytes":1500000}}]}"#;
        assert_eq!(rate(report), Some(1.5e6));
        assert_eq!(rate(br#"{"jobs":[]}"#), None);
        assert_eq!(rate(b"fio: engine not found"), None);
    }

    #[test]
    fn a_child_that_does_not_end_is_ended() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!succeeds(&mut child, Duration::from_millis(20)));
        assert!(child.try_wait().unwrap().is_some());
    }
}
