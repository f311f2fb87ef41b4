//! The bodies of fuzz targets, which `fuzz/` calls.

use bytes::Bytes;
use command::scripting::rules::Rules;

use crate::{merge_selectors, parse_file, write_file, User};

/// Commands that the users are asked about.
const COMMANDS: [&[&str]; 6] = [
    &["get", "a"],
    &["set", "b1", "v", "get"],
    &["config", "set", "save", ""],
    &["zunionstore", "{a}", "2", "a", "b"],
    &["xreadgroup", "GROUP", "g", "c", "STREAMS", "a", "b", ">", ">"],
    &["publish", "news", "text"],
];

/// Applies the words of the input to a user, as `ACL SETUSER` does, and reads the input as a file
/// of users. The description of each user is read back as the same user.
pub fn rules(input: &[u8]) {
    let words: Vec<Bytes> = input.split(|&byte| byte == b' ').map(Bytes::copy_from_slice).collect();
    if let Ok(modifiers) = merge_selectors(&words) {
        let mut user = User::new(input.len() % 2 == 0);
        if modifiers.iter().all(|modifier| user.apply(modifier, false).is_ok()) {
            check(&user);
        }
    }
    let _ = User::parse(input).map(|user| check(&user));
    if let Ok(users) = parse_file("f", input, false) {
        let written = write_file(users.iter().map(|(name, user)| (&name[..], user)));
        let again = parse_file("f", &written, true).expect("what was written");
        assert_eq!(again, users);
    }
}

fn check(user: &User) {
    let described = user.describe();
    assert_eq!(User::parse(&described).as_ref(), Ok(user), "{}", described.escape_ascii());
    let rules = user.script_rules();
    let decoded = Rules::decode(&rules.encode()).expect("what was encoded");
    assert_eq!(decoded, rules);
    for command in COMMANDS {
        let args: Vec<Bytes> = command.iter().map(|word| Bytes::from_static(word.as_bytes())).collect();
        let spec = command::resolve(&args).expect("a known command");
        let permitted = user.check(spec, &args).is_ok();
        assert!(permitted || !user.permits_everything());
        // Channels of a publication are checked apart from the command.
        if command[0] != "publish" {
            assert_eq!(rules.denial(spec, &args).is_none(), permitted, "{}", described.escape_ascii());
        }
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_of_the_fuzz_target_harm_nothing() {
        super::replay::seeds("acl_rules", super::rules);
    }
}
