#![no_main]

steelyard_fuzz::target!(32 << 20, acl::fuzzing::rules);
