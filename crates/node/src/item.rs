//! One keyspace command.

use bytes::Bytes;
use command::CommandSpec;
use resp::Reply;
use storage::Reader;
use types::Slot;

/// Maximum size of a replicated command in bytes, including what its encoding adds.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Maximum number of arguments of a read that counts as reading few rows.
const BOUNDED_READ_ARGUMENTS_MAX: usize = 64;

/// One keyspace command, looked up and checked for arity.
#[derive(Clone)]
pub struct Item {
    pub spec: &'static CommandSpec,
    pub args: Vec<Bytes>,
    pub db: u16,
    /// True if the client uses RESP3, in which some replies have another encoding.
    pub resp3: bool,
    pub slot: ItemSlot,
}

/// The slot of a command's keys, which determines its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemSlot {
    /// The command has no keys, or one region has all slots, so the slot does not matter.
    Any,
    One(Slot),
    Several,
}

impl ItemSlot {
    pub fn of(spec: &'static CommandSpec, args: &[Bytes]) -> ItemSlot {
        let mut slots = command::keys_of(spec, args).map(|(key, _)| types::slot_of_key(key));
        match slots.next() {
            None => ItemSlot::Any,
            Some(first) if slots.all(|slot| slot == first) => ItemSlot::One(first),
            Some(_) => ItemSlot::Several,
        }
    }
}

impl Item {
    /// Looks up a command of a client or of the log. Returns `None` if the command is unknown or
    /// its number of arguments is wrong.
    pub fn new(args: Vec<Bytes>, db: u16, resp3: bool) -> Option<Item> {
        let spec = command::transaction::lookup_in_log(args.first()?)?;
        command::check_arity(spec, &args).ok()?;
        let slot = ItemSlot::of(spec, &args);
        Some(Item { spec: command::leaf(spec, &args), args, db, resp3, slot })
    }

    pub fn is_write(&self) -> bool {
        self.spec.is_write()
    }

    /// Returns true if the command changes nothing while its keys do not exist.
    pub fn needs_its_keys(&self) -> bool {
        self.spec.needs_its_keys()
    }

    /// Returns true if the command needs its keys, and none of them exists.
    pub fn finds_nothing(&self, reader: &dyn Reader) -> storage::Result<bool> {
        command::finds_nothing(self.spec, &self.args, self.db, reader)
    }

    /// Returns true if the command may make the data grow.
    pub fn denies_oom(&self) -> bool {
        self.spec.denies_oom()
            || self.spec.holds_commands && command::transaction::grows(&self.args)
            || command::scripting::grows(self.spec, &self.args)
            || command::copying::grows(self.spec, &self.args)
    }

    /// Returns true if the command reads only a few rows, however large its data is. Such a read
    /// may be part of a log entry, which every replica applies before it continues.
    pub fn is_bounded_read(&self) -> bool {
        self.spec.is_bounded(&self.args) && self.args.len() <= BOUNDED_READ_ARGUMENTS_MAX
    }

    /// Returns true if the command reads collections, and does little if they are small.
    pub fn is_small_if_its_keys_are(&self) -> bool {
        self.spec.is_bounded_by_collections(&self.args) && self.args.len() <= BOUNDED_READ_ARGUMENTS_MAX
    }

    /// Returns an `EXISTS` of the command's keys, or `None` if it has no keys.
    pub fn keys_exist(&self) -> Option<Item> {
        let mut args = vec![Bytes::from_static(b"EXISTS")];
        args.extend(command::keys_of(self.spec, &self.args).map(|(key, _)| key.clone()));
        Item::new(args, self.db, self.resp3)
    }

    /// Returns the error for a command that is too large to replicate. The caller must check this
    /// before it proposes anything.
    pub fn too_large(&self) -> Option<Reply> {
        let bytes = self.bytes();
        (bytes > REQUEST_BYTES_MAX).then(|| {
            Reply::error(format!(
                "ERR request of {bytes} bytes is larger than the largest that is replicated, {REQUEST_BYTES_MAX}"
            ))
        })
    }

    /// Returns the approximate size of the command in an entry, in bytes.
    pub fn bytes(&self) -> usize {
        self.args.iter().map(|arg| arg.len() + 8).sum()
    }
}
