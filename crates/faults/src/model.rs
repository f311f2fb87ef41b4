//! The sequential model of a group of keys: the effect of each call and its possible answers.

use std::sync::Arc;

use crate::history::{Answer, Call, Member};

/// The values by member; an absent one is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Group(Vec<Option<Arc<str>>>);

impl Group {
    pub fn value(&self, member: Member) -> Option<String> {
        self.get(member).map(|value| value.to_string())
    }

    fn get(&self, member: Member) -> Option<&Arc<str>> {
        self.0.get(usize::from(member))?.as_ref()
    }

    fn set(&mut self, member: Member, value: Arc<str>) {
        let at = usize::from(member);
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        self.0[at] = Some(value);
    }

    /// Returns the state after `call`, or `None` if the call cannot have this answer. Without an
    /// answer every result is allowed.
    pub fn step(&self, call: &Call, answer: Option<&Answer>) -> Option<Group> {
        let mut next;
        let given = match call {
            Call::Write(pairs) => {
                next = self.clone();
                pairs.iter().for_each(|(member, value)| next.set(*member, value.as_str().into()));
                Answer::Written
            }
            Call::Read(members) => {
                let Some(answer) = answer else { return Some(self.clone()) };
                let Answer::Values(values) = answer else { return None };
                let held = members.iter().map(|member| self.get(*member).map(|value| &**value));
                return held.eq(values.iter().map(Option::as_deref)).then(|| self.clone());
            }
            Call::Increment(member) => {
                let number = match self.get(*member) {
                    Some(text) => text.parse::<i64>().ok()?,
                    None => 0,
                };
                let number = number.checked_add(1)?;
                next = self.clone();
                next.set(*member, number.to_string().into());
                Answer::Number(number)
            }
            Call::Append(member, text) => {
                let mut whole = self.get(*member).map_or_else(String::new, |held| held.to_string());
                whole.push_str(text);
                let length = whole.len() as u64;
                next = self.clone();
                next.set(*member, whole.into());
                Answer::Length(length)
            }
        };
        answer.is_none_or(|answer| *answer == given).then_some(next)
    }
}
