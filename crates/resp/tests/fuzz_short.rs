//! The bodies of the fuzz targets over mutations of `fuzz/seeds`, from fixed seeds, so that each
//! run has the same inputs. `fuzz/README.md` describes longer runs guided by coverage.

use std::path::Path;

use resp::fuzzing;
use steelyard_resp as resp;
use types::Draw;

const MUTATIONS: u64 = 200_000;

/// Bytes and numbers at which a RESP decoder changes its behaviour.
const TOKENS: [&[u8]; 28] = [
    b"\r\n",
    b"\r",
    b"\n",
    b"*",
    b"$",
    b"-1",
    b"0",
    b"1",
    b"2",
    b"00",
    b"16385",
    b"536870913",
    b"1048577",
    b"9223372036854775807",
    b"18446744073709551616",
    b"\"",
    b"'",
    b"\\x",
    b" ",
    b"\0",
    b"*1\r\n",
    b"$1\r\nx\r\n",
    b"%1\r\n",
    b"|1\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"=5\r\ntxt:a\r\n",
];

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells where the package is"))
        .join("../../fuzz/seeds")
        .join(target);
    let mut paths: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no seeds in {}", dir.display());
    paths.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn below(draw: &mut Draw, bound: usize) -> usize {
    draw.below(bound as u64) as usize
}

fn mutate(input: &mut Vec<u8>, other: &[u8], draw: &mut Draw) {
    let at = below(draw, input.len() + 1);
    let end = (at + 1 + below(draw, 16)).min(input.len());
    match below(draw, 6) {
        0 if at < input.len() => input[at] ^= 1 << below(draw, 8),
        1 => drop(input.drain(at..end)),
        2 => {
            let repeated = input[at..end].to_vec();
            input.splice(at..at, repeated);
        }
        3 => {
            let from = below(draw, other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        4 => drop(input.splice(at..end, TOKENS[below(draw, TOKENS.len())].iter().copied())),
        _ => drop(input.splice(at..at, TOKENS[below(draw, TOKENS.len())].iter().copied())),
    }
    input.truncate(4096);
}

fn run(target: &str, body: fn(&[u8])) {
    let seeds = seeds(target);
    seeds.iter().for_each(|seed| body(seed));
    let draw = &mut Draw::new(1);
    for _ in 0..MUTATIONS {
        let mut input = seeds[below(draw, seeds.len())].clone();
        for _ in 0..=below(draw, 4) {
            mutate(&mut input, &seeds[below(draw, seeds.len())], draw);
        }
        if let Some(receive_by) = input.get_mut(..2) {
            receive_by.copy_from_slice(&draw.number().to_le_bytes()[..2]);
        }
        if std::panic::catch_unwind(|| body(&input)).is_err() {
            panic!("{target} failed on {:?}", input.escape_ascii().to_string());
        }
    }
}

#[test]
fn no_mutated_request_breaks_the_decoder() {
    run("resp_request", fuzzing::resp_request);
}

#[test]
fn no_mutated_reply_breaks_the_decoder() {
    run("resp_reply", fuzzing::resp_reply);
}
