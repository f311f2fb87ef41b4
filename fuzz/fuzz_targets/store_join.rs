#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| server::fuzz_join(input));
