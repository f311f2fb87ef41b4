#![no_main]

steelyard_fuzz::target!(64 << 20, rdb::fuzzing::rdb);
