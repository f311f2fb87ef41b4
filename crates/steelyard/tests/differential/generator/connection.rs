//! Commands about the connection whose answers are the same on both servers.

use super::{args, compared, exact, Generator, Step};
use crate::compare::Compare;

impl Generator {
    pub(super) fn connection_command(&mut self) -> Step {
        let args = match self.chance.below(16) {
            0 => args!["PING"],
            1 => args!["PING", self.value()],
            2 => args!["ECHO", self.value()],
            3..=5 => {
                let version = self.chance.pick(&["2", "3", "3", "1", "4", "x", ""]);
                let mut args = args!["HELLO", version];
                if self.chance.percent(20) {
                    args.extend([b"SETNAME".to_vec(), self.text(5)]);
                }
                return compared(args, Compare::Greeting);
            }
            6 => args!["CLIENT", "GETNAME"],
            7 => args!["CLIENT", "SETNAME", self.text(6)],
            8 => args!["CLIENT", self.chance.pick(&["NONSENSE", "SETNAME", "", "\u{e9}"])],
            9 => args!["RESET"],
            10 => {
                let name = self.chance.pick(&["NOTACOMMAND", "get ", "", "\u{0}", "OBJECTS", "HGETTALL"]);
                args![name, self.value(), self.value()]
            }
            11 => args!["CONFIG", self.chance.pick(&["NONSENSE", "GET", "SET"])],
            12 => args!["COMMAND", "GETKEYS", "MSET", self.key(), "1", self.key(), "2"],
            13 => args![
                "COMMAND",
                "GETKEYS",
                self.chance.pick(&["GET", "RENAME", "COPY", "PING", "NOTHING"]),
                self.key(),
                self.key()
            ],
            14 => args!["AUTH", self.value()],
            _ => args!["SELECT", self.database()],
        };
        exact(args)
    }
}
