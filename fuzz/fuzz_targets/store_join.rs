#![no_main]

// The server has the allocator of the whole process.
libfuzzer_sys::fuzz_target!(|input: &[u8]| server::fuzzing::store_join(input));
