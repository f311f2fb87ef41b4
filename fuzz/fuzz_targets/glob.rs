#![no_main]

steelyard_fuzz::target!(16 << 20, command::fuzzing::glob);
