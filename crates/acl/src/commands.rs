//! The set of commands that a selector permits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use command::permission::has_first_argument;
use command::scripting::rules::SelectorRules;
use command::CommandSpec;

use crate::absent;
use crate::categories;
use crate::rule_error::RuleError;

/// A command or subcommand. Its position in [`all`] is its number.
pub(crate) struct Entry {
    pub spec: &'static CommandSpec,
    categories: Vec<&'static str>,
}

impl Entry {
    /// Returns true if the command is in a category. `category` has no `@`.
    pub fn is_in(&self, category: &str) -> bool {
        self.categories.iter().any(|own| own[1..] == *category)
    }

    /// Returns the numbers of the command's subcommands, which follow it.
    fn parts(&self, number: usize) -> std::ops::Range<usize> {
        number + 1..number + 1 + self.spec.subcommands.len()
    }
}

struct Numbers {
    all: Vec<Entry>,
    /// The number of each command by the address of its specification, sorted.
    by_address: Vec<(usize, usize)>,
}

static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| {
    let specs = command::commands().iter().flat_map(|spec| std::iter::once(*spec).chain(spec.subcommands));
    let all: Vec<Entry> = specs.map(|spec| Entry { spec, categories: spec.acl_categories() }).collect();
    let mut by_address: Vec<(usize, usize)> =
        all.iter().enumerate().map(|(number, entry)| (address(entry.spec), number)).collect();
    by_address.sort_unstable();
    Numbers { all, by_address }
});

fn address(spec: &'static CommandSpec) -> usize {
    std::ptr::from_ref(spec) as usize
}

/// Returns all commands, each followed by its subcommands.
pub(crate) fn all() -> &'static [Entry] {
    &NUMBERS.all
}

/// Returns the names of the commands and subcommands of a category; `None` if there is no such
/// category.
pub fn category_members(name: &[u8]) -> Option<Vec<&'static str>> {
    let category = categories::find(name)?;
    Some(all().iter().filter(|entry| entry.is_in(category)).map(|entry| entry.spec.name).collect())
}

fn number_of(spec: &'static CommandSpec) -> Option<usize> {
    let numbers = &NUMBERS.by_address;
    let at = numbers.binary_search_by_key(&address(spec), |(address, _)| *address).ok()?;
    Some(numbers[at].1)
}

/// The meaning of a name in a rule.
#[derive(Clone, Copy)]
enum Named {
    Command(usize),
    /// A command of Redis that does not exist here.
    Absent {
        has_parts: bool,
    },
}

/// Finds a command, or a subcommand by `container|subcommand`, in lower case.
fn find(name: &str) -> Option<Named> {
    let found = match name.split_once('|') {
        None => command::lookup(name.as_bytes()),
        Some((container, _)) => command::lookup(container.as_bytes())
            .and_then(|spec| spec.subcommands.iter().find(|sub| sub.name == name)),
    };
    match found {
        Some(spec) => number_of(spec).map(Named::Command),
        None => absent::is_known(name).then(|| Named::Absent { has_parts: absent::is_container(name) }),
    }
}

/// The permitted commands, and the rules that lead to them. As Redis's selectors from version 7.2
/// on, it keeps the rules in their order and drops those that a later one replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandSet {
    /// True if the rules begin with `+@all`, false if they begin with `-@all`.
    begins_with_all: bool,
    /// The rules that follow: permission, and a name or `@category`.
    rules: Vec<(bool, String)>,
    /// Bit `n` of word `n / 64` is set if command `n` is permitted.
    bits: Vec<u64>,
    /// First arguments that are permitted for commands that are not, by the command's number.
    first_arguments: BTreeMap<usize, BTreeSet<String>>,
}

impl CommandSet {
    pub fn none() -> CommandSet {
        CommandSet {
            begins_with_all: false,
            rules: Vec::new(),
            bits: vec![0; all().len().div_ceil(64)],
            first_arguments: BTreeMap::new(),
        }
    }

    /// Permits or forbids every command.
    pub fn set_all(&mut self, permitted: bool) {
        self.begins_with_all = permitted;
        self.rules.clear();
        self.first_arguments.clear();
        self.bits.fill(if permitted { u64::MAX } else { 0 });
    }

    /// Returns true if every command is permitted.
    pub fn has_all(&self) -> bool {
        (0..all().len()).all(|number| self.has(number))
    }

    fn has(&self, number: usize) -> bool {
        self.bits[number / 64] & (1 << (number % 64)) != 0
    }

    fn set(&mut self, number: usize, permitted: bool) {
        let bit = 1 << (number % 64);
        match permitted {
            true => self.bits[number / 64] |= bit,
            false => self.bits[number / 64] &= !bit,
        }
    }

    /// Permits or forbids a command with its subcommands.
    fn set_whole(&mut self, number: usize, permitted: bool) {
        self.set(number, permitted);
        self.first_arguments.remove(&number);
        for part in all()[number].parts(number) {
            self.set(part, permitted);
        }
    }

    pub fn set_category(&mut self, name: &[u8], permitted: bool) -> Result<(), RuleError> {
        let category = categories::find(name).ok_or(RuleError::UnknownCommand)?;
        for (number, entry) in all().iter().enumerate() {
            if entry.is_in(category) {
                self.set_whole(number, permitted);
            }
        }
        self.note(permitted, format!("@{category}"));
        Ok(())
    }

    /// Executes `-name`.
    pub fn forbid(&mut self, name: &[u8]) -> Result<(), RuleError> {
        let name = lower(name)?;
        if let Named::Command(number) = find(&name).ok_or(RuleError::UnknownCommand)? {
            self.set_whole(number, false);
        }
        self.note(false, name);
        Ok(())
    }

    /// Executes `+name`, `+container|subcommand` or `+name|first-argument`.
    pub fn permit(&mut self, name: &[u8]) -> Result<(), RuleError> {
        let name = match name.iter().rposition(|&byte| byte == b'|') {
            None => lower(name)?,
            // The first argument may have any bytes, which are compared in any case.
            Some(bar) => {
                let first = String::from_utf8_lossy(&name[bar + 1..]).to_ascii_lowercase();
                lower(&name[..bar])? + "|" + &first
            }
        };
        match name.rsplit_once('|') {
            None => {
                if let Named::Command(number) = find(&name).ok_or(RuleError::UnknownCommand)? {
                    self.set_whole(number, true);
                }
            }
            Some((container, part)) => {
                let owner = find(container).ok_or(RuleError::UnknownCommand)?;
                if container.contains('|') {
                    return Err(RuleError::FirstArgumentOfSubcommand);
                }
                if part.is_empty() {
                    return Err(RuleError::Syntax);
                }
                let has_parts = match owner {
                    Named::Command(number) => !all()[number].spec.subcommands.is_empty(),
                    Named::Absent { has_parts } => has_parts,
                };
                match (owner, has_parts) {
                    (_, true) => match find(&name).ok_or(RuleError::UnknownCommand)? {
                        Named::Command(number) => self.set_whole(number, true),
                        Named::Absent { .. } => {}
                    },
                    (Named::Command(number), false) => {
                        self.first_arguments.entry(number).or_default().insert(part.to_owned());
                    }
                    (Named::Absent { .. }, false) => {}
                }
            }
        }
        self.note(true, name);
        Ok(())
    }

    /// Appends a rule, in place of the earlier ones that it replaces.
    fn note(&mut self, permitted: bool, name: String) {
        self.rules.retain(|(_, earlier)| {
            let rest = earlier.strip_prefix(&name);
            rest.is_none_or(|rest| !(rest.is_empty() || rest.starts_with('|')))
        });
        self.rules.push((permitted, name));
    }

    /// Returns true if the command is permitted with these arguments. `spec` is the entry of the
    /// command or its subcommand.
    pub fn permits(&self, spec: &'static CommandSpec, args: &[bytes::Bytes]) -> bool {
        let Some(number) = number_of(spec) else { return false };
        if self.has(number) {
            return true;
        }
        let arguments = self.first_arguments.get(&number);
        arguments.is_some_and(|known| has_first_argument(spec, args, known.iter()))
    }

    /// Adds the permitted commands to the rules of a script: those that are named by less.
    pub fn tell(&self, rules: &mut SelectorRules) {
        let permitted = (0..all().len()).filter(|number| self.has(*number)).count();
        rules.forbids = all().len() - permitted < permitted;
        let named = (0..all().len()).filter(|number| self.has(*number) != rules.forbids);
        rules.commands = named.map(|number| all()[number].spec.name.to_owned()).collect();
        for (number, arguments) in &self.first_arguments {
            let name = all()[*number].spec.name;
            rules.first_arguments.extend(arguments.iter().map(|text| (name.to_owned(), text.clone())));
        }
    }

    /// Returns the rules, from `+@all` or `-@all` on.
    pub fn describe(&self) -> String {
        let mut text = if self.begins_with_all { "+@all" } else { "-@all" }.to_owned();
        for (permitted, name) in &self.rules {
            text.push_str(if *permitted { " +" } else { " -" });
            text.push_str(name);
        }
        text
    }
}

/// Returns a command's name in lower case. No command has other characters than ASCII.
fn lower(name: &[u8]) -> Result<String, RuleError> {
    let text = std::str::from_utf8(name).map_err(|_| RuleError::UnknownCommand)?;
    Ok(text.to_ascii_lowercase())
}
