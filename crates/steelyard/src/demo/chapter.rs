//! The chapters of the demonstration.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chapter {
    Start,
    Load,
    Even,
    Adaptive,
    Kill,
    Proof,
}

impl Chapter {
    pub const ALL: [Chapter; 6] =
        [Chapter::Start, Chapter::Load, Chapter::Even, Chapter::Adaptive, Chapter::Kill, Chapter::Proof];

    pub fn name(self) -> &'static str {
        match self {
            Chapter::Start => "start",
            Chapter::Load => "load",
            Chapter::Even => "even",
            Chapter::Adaptive => "adaptive",
            Chapter::Kill => "kill -9",
            Chapter::Proof => "proof",
        }
    }

    /// Returns one line that explains the chapter to a newcomer.
    pub fn explanation(self) -> &'static str {
        match self {
            Chapter::Start => "Every store is one process with an emulated device of its own.",
            Chapter::Load => {
                "Each record is written to three stores, and acknowledged once two have synced it."
            }
            Chapter::Even => "Policy even: all stores lead and hold equally much, whatever their devices.",
            Chapter::Adaptive => "Policy adaptive: leaders and copies go where the devices can carry them.",
            Chapter::Kill => "The store that leads most is killed under load, and then started again.",
            Chapter::Proof => "Every record is read back and compared with what was acknowledged.",
        }
    }
}
