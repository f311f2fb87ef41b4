//! `EVAL`, `EVALSHA` and their read-only forms: they become one command of their region, which
//! holds the script (`command::scripting`).

use bytes::Bytes;
use command::scripting::{eval_args, refusal_args, renew_rules, sent_args, Caller, ScriptCall, NO_SCRIPT};
use command::transaction::lookup_in_log;
use command::CommandSpec;
use resp::{Protocol, Reply};

use super::{Admitted, Ask, Call, Host, Session};
use crate::item::{Item, ItemSlot};

impl<R: Clone + PartialEq> Session<R> {
    /// Returns the caller's permissions as the command has them, if the user is restricted.
    fn caller<H: Host<Region = R>>(&self, host: &mut H) -> Caller {
        let rules = if self.context.is_restricted { host.script_rules() } else { None };
        Caller { has_slots: host.has_slots(), rules }
    }

    /// Executes a script, or queues it in a transaction.
    pub(super) fn script<H: Host<Region = R>>(
        &mut self,
        host: &mut H,
        (call, leaf): (ScriptCall, &'static CommandSpec),
        args: Vec<Bytes>,
        asks: &mut Vec<Ask<R>>,
    ) -> Admitted {
        let is_queued = self.queues(leaf);
        if !is_queued {
            self.show(host, leaf, &args);
        }
        let body = match call.by_digest {
            true => host.script(&args[1]),
            false => {
                host.note_script(&args[1]);
                Some(args[1].clone())
            }
        };
        let found = body.ok_or_else(|| Reply::error(NO_SCRIPT));
        let caller = self.caller(host);
        let eval = eval_args(call, &args, found, caller);
        if is_queued {
            // As in Redis, the reply of EXEC has the error.
            let args = eval.unwrap_or_else(|error| refusal_args(call, &args, &error));
            let spec = lookup_in_log(&args[0]).expect("a script's command");
            return Admitted::Answered(self.queue(host, spec, args).into());
        }
        self.call = Call::Executed(leaf);
        let eval = match eval {
            Ok(eval) => eval,
            Err(error) => return Admitted::Answered(error.into()),
        };
        let spec = lookup_in_log(&eval[0]).expect("a script's command");
        self.last_command = Some(leaf.name);
        let slot = if host.has_slots() { ItemSlot::of(spec, &eval) } else { ItemSlot::Any };
        let resp3 = self.context.protocol == Protocol::Resp3;
        let item = Item { spec, db: self.context.db, resp3, args: eval, slot };
        match self.keyspace(host, item, asks) {
            // The command is taken again.
            Admitted::Stalled(_) => Admitted::Stalled(args),
            admitted => admitted,
        }
    }

    /// Tells other clients of a queued command that is executed now, as the client sent it.
    pub(super) fn show_queued<H: Host<Region = R>>(
        &self,
        host: &mut H,
        spec: &'static CommandSpec,
        args: &[Bytes],
    ) {
        match sent_args(spec, args) {
            Some((spec, sent)) => self.show(host, spec, &sent),
            None => self.show(host, spec, args),
        }
    }

    /// Checks a queued command again, because the user's rules may have changed since. The commands
    /// of a script are checked by the rules of now.
    pub(super) fn forbids_queued<H: Host<Region = R>>(
        host: &mut H,
        spec: &'static CommandSpec,
        args: &mut [Bytes],
    ) -> Option<Reply> {
        match sent_args(spec, args) {
            Some((spec, sent)) => {
                renew_rules(args, host.script_rules());
                host.forbids(spec, &sent)
            }
            None => host.forbids(spec, args),
        }
    }
}
