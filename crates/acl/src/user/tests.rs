use super::*;

fn args(line: &str) -> Vec<Bytes> {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

fn user(rules: &str) -> User {
    let mut user = User::new(false);
    for modifier in merge_selectors(&args(rules)).unwrap() {
        user.apply(&modifier, false).unwrap_or_else(|error| panic!("{rules}: {error}"));
    }
    user
}

fn check(user: &User, line: &str) -> Result<(), Denial> {
    let args = args(line);
    user.check(command::resolve(&args).unwrap(), &args)
}

#[test]
fn the_default_user_may_do_everything_and_a_new_one_nothing() {
    let (default, new) = (User::default_user(None), User::new(true));
    assert!(default.permits_everything() && default.is_open());
    for line in ["get a", "flushall", "config set maxclients 1", "mset a 1 b 2"] {
        assert_eq!((check(&default, line), check(&new, line)), (Ok(()), Err(Denial::Command)));
    }
    assert_eq!(default.describe(), b"on nopass ~* &* +@all");
    assert_eq!(new.describe(), b"off &* -@all");
    assert_eq!(check(&new, "auth x"), Ok(()), "commands without authentication are always permitted");
}

#[test]
fn commands_are_permitted_by_name_category_subcommand_and_first_argument() {
    let user = user("+@hash -hdel +config|get +select|0 +client ~*");
    for line in ["hget a b", "config get x", "select 0", "client id", "client list"] {
        assert_eq!(check(&user, line), Ok(()), "{line}");
    }
    for line in ["hdel a b", "config set a b", "select 1", "get a"] {
        assert_eq!(check(&user, line), Err(Denial::Command), "{line}");
    }
    assert_eq!(user.describe(), b"off ~* resetchannels -@all +@hash -hdel +config|get +select|0 +client");
}

#[test]
fn patterns_of_sort_need_access_to_all_keys() {
    use command::sort::Pattern::{By, Get};

    let some = user("+@all ~l*");
    assert_eq!(check(&some, "sort l by nosort limit 0 1 alpha"), Ok(()));
    assert_eq!(check(&some, "sort l by w_*"), Err(Denial::Pattern(By)));
    assert_eq!(check(&some, "sort_ro l get #"), Err(Denial::Pattern(Get)));
    assert_eq!(check(&some, "sort l store d"), Err(Denial::Key(3)));
    assert_eq!(check(&some, "sort l by w_* store d"), Err(Denial::Key(5)));
    assert_eq!(check(&user("+@all ~l* %W~*"), "sort l by w_*"), Err(Denial::Pattern(By)));
    assert_eq!(check(&user("+@all %R~*"), "sort l by w_* get #"), Ok(()));
}

#[test]
fn keys_need_a_pattern_with_their_access() {
    let user = user("+@all %R~r* %W~w* ~a*");
    for line in ["get r1", "set w1 v", "set a v", "copy r w", "exists w1", "lmpop 2 a1 a2 left"] {
        assert_eq!(check(&user, line), Ok(()), "{line}");
    }
    for (line, at) in [
        ("get w1", 1),
        ("set r1 v", 1),
        ("set w1 v get", 1),
        ("copy w r", 1),
        ("copy r r", 2),
        ("mset a 1 b 2", 3),
        ("zunionstore a 2 r1 x", 4),
        ("lmpop 2 a1 r2 left", 3),
        ("bitfield r1 set u8 0 1", 1),
    ] {
        assert_eq!(check(&user, line), Err(Denial::Key(at)), "{line}");
    }
    assert_eq!(check(&user, "bitfield r1 get u8 0"), Ok(()));
}

#[test]
fn channels_need_a_pattern_and_patterns_of_channels_the_same_pattern() {
    let user = user("+@all ~* &news* &exact");
    for line in
        ["publish news1 x", "subscribe news exact", "psubscribe news* exact", "unsubscribe other", "ping"]
    {
        assert_eq!(check(&user, line), Ok(()), "{line}");
    }
    for (line, at) in [
        ("publish other x", 1),
        ("subscribe news other", 2),
        ("psubscribe news1*", 1),
        ("ssubscribe exact *", 2),
        ("spublish other x", 1),
    ] {
        assert_eq!(check(&user, line), Err(Denial::Channel(at)), "{line}");
    }
    assert!(user.permits_channel(b"news7", false) && !user.permits_channel(b"news7", true));
    assert!(!user.permits_everything(), "its channels are restricted");
    // Shard channels are no keys.
    let user = self::user("+@all ~a &b");
    assert_eq!(check(&user, "spublish b x"), Ok(()));
}

#[test]
fn one_selector_must_permit_all_of_a_command() {
    let user = user("+get ~a (+set ~b) (+mget %R~c ~d)");
    assert_eq!(
        (check(&user, "get a"), check(&user, "set b 1"), check(&user, "mget c d")),
        (Ok(()), Ok(()), Ok(()))
    );
    assert_eq!(check(&user, "set a 1"), Err(Denial::Key(1)));
    assert_eq!(check(&user, "mget c a"), Err(Denial::Key(2)));
    assert_eq!(check(&user, "del a"), Err(Denial::Command));
}

#[test]
fn passwords_are_digests_and_are_added_and_removed() {
    let mut user = user("on >one >two");
    assert!(user.admits(b"one") && user.admits(b"two") && !user.admits(b"three") && !user.admits(b""));
    user.apply(b"<one", false).unwrap();
    assert!(!user.admits(b"one"));
    assert_eq!(user.apply(b"<one", false), Err(RuleError::NoSuchPassword));
    assert_eq!(user.apply(b"#abc", false), Err(RuleError::BadDigest));
    user.apply(format!("!{}", hash(b"two")).as_bytes(), false).unwrap();
    assert!(!user.admits(b"two"));
    user.apply(b"nopass", false).unwrap();
    assert!(user.admits(b"anything"));
    user.apply(b"off", false).unwrap();
    assert!(!user.admits(b"anything"), "a user that is off cannot log in");
    user.apply(b"resetpass", false).unwrap();
    user.apply(b"on", false).unwrap();
    assert!(!user.admits(b""));
}

#[test]
fn modifiers_that_are_not_valid_are_refused_with_the_reason() {
    let refused = |rules: &str| {
        let mut user = User::new(false);
        let modifiers = merge_selectors(&args(rules)).unwrap();
        modifiers.iter().find_map(|modifier| user.apply(modifier, false).err())
    };
    for (rules, error) in [
        ("+nope", RuleError::UnknownCommand),
        ("+@nope", RuleError::UnknownCommand),
        ("-select|0", RuleError::UnknownCommand),
        ("+config|nope", RuleError::UnknownCommand),
        ("+config|get|x", RuleError::FirstArgumentOfSubcommand),
        ("+select|", RuleError::Syntax),
        ("nonsense", RuleError::Syntax),
        ("%~a", RuleError::Syntax),
        ("%", RuleError::Syntax),
        ("%RR~a", RuleError::Syntax),
        ("~* ~a", RuleError::PatternAfterAll),
        ("&* &a", RuleError::ChannelAfterAll),
        ("(+get on)", RuleError::Syntax),
    ] {
        assert_eq!(refused(rules), Some(error), "{rules}");
    }
    assert_eq!(refused("+geoadd -xinfo|stream +debug|object"), None, "commands of Redis may be named");
    assert_eq!(merge_selectors(&args("on (+get ~a")), Err(Unmatched("(+get".into())));
}

#[test]
fn later_rules_replace_earlier_ones_in_the_description() {
    for (rules, described) in [
        ("+get +@read -get +get", "off resetchannels -@all +@read +get"),
        ("+config|get +config|set -config", "off resetchannels -@all -config"),
        ("+@all -get allcommands", "off resetchannels +@all"),
        ("%R~a %W~a &c &c", "off ~a resetchannels &c -@all"),
        ("reset on", "on sanitize-payload resetchannels -@all"),
        ("+GET (+SET ~x)", "off resetchannels -@all +get (~x resetchannels -@all +set)"),
    ] {
        assert_eq!(String::from_utf8(user(rules).describe()).unwrap(), described, "{rules}");
    }
}

/// A user survives its description, whatever modifiers led to it, and no modifier panics.
#[test]
fn random_modifiers_lead_to_users_that_survive_their_description() {
    let mut draw = types::Draw::new(7);
    let pieces: [&[u8]; 40] = [
        b"on",
        b"off",
        b"nopass",
        b"reset",
        b"resetpass",
        b"resetkeys",
        b"allkeys",
        b"~*",
        b"~a*",
        b"%R~b",
        b"%W~b",
        b"%RW~c?",
        b"&*",
        b"&c",
        b"allchannels",
        b"resetchannels",
        b"+@all",
        b"-@all",
        b"+@read",
        b"-@write",
        b"+get",
        b"-get",
        b"+config",
        b"-config|get",
        b"+config|set",
        b"+select|1",
        b"+geoadd",
        b"-xinfo|stream",
        b"(+get ~a)",
        b"(-@all)",
        b"(%R~q +@all -set)",
        b"clearselectors",
        b">pw",
        b"<pw",
        b"#",
        b"(",
        b")",
        b"%",
        b"+",
        b"\xff\0 |",
    ];
    let mut kept = 0;
    for _ in 0..20_000 {
        let mut user = User::new(draw.number() % 2 == 0);
        for _ in 0..draw.number() % 8 {
            let mut modifier = pieces[(draw.number() % 40) as usize].to_vec();
            // Some are damaged.
            if draw.number() % 4 == 0 && !modifier.is_empty() {
                let at = (draw.number() as usize) % modifier.len();
                match draw.number() % 3 {
                    0 => modifier[at] = draw.number() as u8,
                    1 => modifier.truncate(at),
                    _ => modifier.insert(at, draw.number() as u8),
                }
            }
            let before = user.clone();
            if user.apply(&modifier, false).is_err() {
                user = before;
            }
        }
        let described = user.describe();
        let again = User::parse(&described);
        assert_eq!(again.as_ref(), Ok(&user), "{}", String::from_utf8_lossy(&described));
        kept += usize::from(described.len() > 40);
    }
    assert!(kept > 1000, "the users are not all empty: {kept}");
}
