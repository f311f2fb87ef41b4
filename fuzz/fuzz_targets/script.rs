#![no_main]

steelyard_fuzz::target!(512 << 20, script::fuzzing::script);
