#![no_main]

steelyard_fuzz::target!(32 << 20, cluster::fuzzing::message);
