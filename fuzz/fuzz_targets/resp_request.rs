#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| resp::fuzzing::resp_request(input));
