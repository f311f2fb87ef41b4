//! A selector: permitted commands, with the keys and channels that they may touch.

use bytes::Bytes;
use command::permission::{Access, KeyPattern};
use command::scripting::rules::SelectorRules;
use command::sort::Pattern;
use command::{glob_matches, CommandSpec};

use crate::commands::CommandSet;
use crate::patterns;
use crate::rule_error::RuleError;
use crate::words::has_spaces;

/// The reason why a user may not execute a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    Command,
    /// The key at this position among the arguments.
    Key(usize),
    /// A pattern of `SORT`, which may name any key.
    Pattern(Pattern),
    /// The channel, or pattern of channels, at this position among the arguments.
    Channel(usize),
}

/// A set of permissions. A user may execute a command if one of its selectors permits all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    commands: CommandSet,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Vec<u8>>,
}

/// A selector as `ACL GETUSER` shows it.
pub struct SelectorView {
    pub commands: String,
    pub keys: Vec<u8>,
    pub channels: Vec<u8>,
}

impl Selector {
    pub(crate) fn new(all_channels: bool) -> Selector {
        Selector {
            commands: CommandSet::none(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
        }
    }

    /// Applies one rule.
    pub(crate) fn set(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        // Redis compares words as C strings.
        let word = rule.split(|&byte| byte == 0).next().unwrap_or_default();
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("allkeys") || is("~*") {
            self.all_keys = true;
            self.keys.clear();
        } else if is("resetkeys") {
            self.all_keys = false;
            self.keys.clear();
        } else if is("allchannels") || is("&*") {
            self.all_channels = true;
            self.channels.clear();
        } else if is("resetchannels") {
            self.all_channels = false;
            self.channels.clear();
        } else if is("allcommands") || is("+@all") {
            self.commands.set_all(true);
        } else if is("nocommands") || is("-@all") {
            self.commands.set_all(false);
        } else {
            match word {
                [b'~' | b'%', ..] => return self.add_keys(rule),
                [b'&', ..] => return self.add_channels(&rule[1..]),
                [b'+', b'@', category @ ..] => return self.commands.set_category(category, true),
                [b'-', b'@', category @ ..] => return self.commands.set_category(category, false),
                [b'+', name @ ..] => return self.commands.permit(name),
                [b'-', name @ ..] => return self.commands.forbid(name),
                _ => return Err(RuleError::Syntax),
            }
        }
        Ok(())
    }

    fn add_keys(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::PatternAfterAll);
        }
        let (mut access, mut glob) = (Access::ALL, &rule[1..]);
        if rule[0] == b'%' {
            access = Access { read: false, write: false };
            while let [letter, rest @ ..] = glob {
                glob = rest;
                match letter.to_ascii_uppercase() {
                    b'R' if !access.read => access.read = true,
                    b'W' if !access.write => access.write = true,
                    b'~' => break,
                    _ => return Err(RuleError::Syntax),
                }
            }
        }
        if has_spaces(glob) || !(access.read || access.write) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| known.glob == glob) {
            Some(known) => {
                known.access.read |= access.read;
                known.access.write |= access.write;
            }
            None => self.keys.push(KeyPattern { glob: glob.to_vec(), access }),
        }
        Ok(())
    }

    fn add_channels(&mut self, glob: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::ChannelAfterAll);
        }
        if has_spaces(glob) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| known == glob) {
            self.channels.push(glob.to_vec());
        }
        Ok(())
    }

    /// Returns true if every command is permitted on every key and every channel.
    pub(crate) fn permits_everything(&self) -> bool {
        self.all_keys && self.all_channels && self.commands.has_all()
    }

    /// Returns true if a channel is permitted. A pattern of channels must be one of the patterns.
    pub(crate) fn permits_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let permits = |glob: &Vec<u8>| match is_pattern {
            true => glob == channel,
            false => glob_matches(glob, channel),
        };
        self.all_channels || self.channels.iter().any(permits)
    }

    /// Returns the reason why a command is not permitted.
    pub(crate) fn check(&self, spec: &'static CommandSpec, args: &[Bytes]) -> Result<(), Denial> {
        if !spec.has(command::flags::NO_AUTH) && !self.commands.permits(spec, args) {
            return Err(Denial::Command);
        }
        if !self.all_keys && !spec.keys.is_empty() {
            for (at, key, flags) in command::key_access(spec, args) {
                let needed = Access::of(flags);
                if !self.keys.iter().any(|pattern| pattern.permits(key, needed)) {
                    return Err(Denial::Key(at));
                }
            }
            // The keys that a pattern of SORT names are not known here.
            if let Some(pattern) = command::sort::pattern_of(spec.name, args) {
                if !self.keys.iter().any(|keys| keys.glob == b"*" && keys.access.read) {
                    return Err(Denial::Pattern(pattern));
                }
            }
        }
        let Some((mut positions, is_pattern)) = spec.channels(args.len()).filter(|_| !self.all_channels)
        else {
            return Ok(());
        };
        match positions.find(|at| !self.permits_channel(&args[*at], is_pattern)) {
            Some(at) => Err(Denial::Channel(at)),
            None => Ok(()),
        }
    }

    /// Returns the permissions as the log entry of a script has them.
    pub(crate) fn rules(&self) -> SelectorRules {
        let mut rules = SelectorRules {
            all_keys: self.all_keys,
            keys: self.keys.clone(),
            all_channels: self.all_channels,
            channels: self.channels.clone(),
            ..SelectorRules::default()
        };
        self.commands.tell(&mut rules);
        rules
    }

    pub fn view(&self) -> SelectorView {
        let mut keys = Vec::new();
        if self.all_keys {
            keys.extend_from_slice(b"~*");
        }
        for pattern in &self.keys {
            separate(&mut keys);
            patterns::describe(pattern, &mut keys);
        }
        let mut channels = Vec::new();
        if self.all_channels {
            channels.extend_from_slice(b"&*");
        }
        for glob in &self.channels {
            separate(&mut channels);
            channels.push(b'&');
            channels.extend_from_slice(glob);
        }
        SelectorView { commands: self.commands.describe(), keys, channels }
    }

    /// Appends the rules that describe the selector.
    pub(crate) fn describe(&self, out: &mut Vec<u8>) {
        let SelectorView { commands, keys, channels } = self.view();
        if !keys.is_empty() {
            out.extend_from_slice(&keys);
            out.push(b' ');
        }
        if !self.all_channels {
            out.extend_from_slice(b"resetchannels ");
        }
        if !channels.is_empty() {
            out.extend_from_slice(&channels);
            out.push(b' ');
        }
        out.extend_from_slice(commands.as_bytes());
    }
}

fn separate(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b' ');
    }
}
