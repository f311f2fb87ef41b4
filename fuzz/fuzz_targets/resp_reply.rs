#![no_main]

steelyard_fuzz::target!(16 << 20, resp::fuzzing::resp_reply);
