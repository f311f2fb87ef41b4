#![no_main]

steelyard_fuzz::target!(512 << 20, command::fuzzing::log_entry);
