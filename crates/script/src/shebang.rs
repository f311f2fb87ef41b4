//! The first line of a script, which may name flags: `#!lua flags=no-writes,allow-oom`.

/// The longest first line that is read for flags, in bytes.
pub const SHEBANG_LEN_MAX: usize = 4096;

/// The flags of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// True if the script has a first line with flags. The others are false without one.
    pub are_stated: bool,
    pub no_writes: bool,
    pub allow_oom: bool,
    /// Without effect: stores have no state in which data is stale.
    pub allow_stale: bool,
    pub no_cluster: bool,
    pub allow_cross_slot_keys: bool,
}

impl Flags {
    fn places(&mut self) -> [(&'static str, &mut bool); 5] {
        [
            ("no-writes", &mut self.no_writes),
            ("allow-oom", &mut self.allow_oom),
            ("allow-stale", &mut self.allow_stale),
            ("no-cluster", &mut self.no_cluster),
            ("allow-cross-slot-keys", &mut self.allow_cross_slot_keys),
        ]
    }

    /// Sets a flag. Returns false if there is none with this name.
    pub(crate) fn set(&mut self, name: &str) -> bool {
        match self.places().into_iter().find(|(known, _)| *known == name) {
            Some((_, flag)) => {
                *flag = true;
                true
            }
            None => false,
        }
    }

    /// Returns the names of the flags that are set, in Redis's order.
    pub fn names(mut self) -> Vec<&'static str> {
        self.places().into_iter().filter(|(_, flag)| **flag).map(|(name, _)| name).collect()
    }

    /// Returns the flags with these names, if there are no others.
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Flags> {
        let mut flags = Flags { are_stated: true, ..Flags::default() };
        names.into_iter().all(|name| flags.set(name)).then_some(flags)
    }
}

/// Returns the flags of a script and the length of its first line, 0 if it has none of them.
///
/// # Errors
/// The text of the error, without its code.
pub fn flags_of(body: &[u8]) -> Result<(Flags, usize), String> {
    let mut flags = Flags::default();
    if !body.starts_with(b"#!") {
        return Ok((flags, 0));
    }
    let end = body.iter().take(SHEBANG_LEN_MAX).position(|&byte| byte == b'\n');
    let Some(end) = end else { return Err("Invalid script shebang".into()) };
    flags.are_stated = true;
    let Ok(words) = resp::split_words(&body[..end]) else {
        return Err("Invalid engine in script shebang".into());
    };
    let mut words = words.iter().map(|word| String::from_utf8_lossy(word));
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(format!("Unexpected engine in script shebang: {engine}"));
    }
    for word in words {
        let Some(names) = word.strip_prefix("flags=") else {
            return Err(format!("Unknown lua shebang option: {word}"));
        };
        for name in names.split(',').filter(|_| !names.is_empty()) {
            if !flags.set(name) {
                return Err(format!("Unexpected flag in script shebang: {name}"));
            }
        }
    }
    Ok((flags, end))
}
