#![no_main]

steelyard_fuzz::target!(64 << 20, cluster::fuzzing::meta_log);
