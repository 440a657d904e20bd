//! Commands of the model as a real server takes them: real keys, real scripts, milliseconds.

use crate::model::command::{Command, Script, Word};
use crate::model::state::Value;
use std::time::Duration;

/// Reads or writes what the lock protects for the bearer of a fencing token.
pub(crate) const GUARDED: &str = include_str!("lua/guarded.lua");

/// The real names of what a command speaks of.
pub(crate) struct Wire {
    pub(crate) lock: String,
    pub(crate) fence: String,
    pub(crate) ttl: Duration,
}

impl Wire {
    pub(crate) fn words(&self, command: &Command, encode: impl Fn(Value) -> String) -> Vec<String> {
        let mut words = Vec::new();
        for word in &command.words {
            match word {
                Word::Plain("EX") => words.push("PX".to_owned()),
                Word::Plain("EXPIRE") => words.push("PEXPIRE".to_owned()),
                Word::Plain("TTL") => words.push("PTTL".to_owned()),
                Word::Plain(text) => words.push((*text).to_owned()),
                Word::Lock => words.push(self.lock.clone()),
                Word::Value(value) => words.push(encode(*value)),
                Word::Ttl => words.push(self.ttl.as_millis().to_string()),
                Word::Script(script) => {
                    let fence = (*script == Script::Claim).then(|| self.fence.clone());
                    words.push(script.source().to_owned());
                    words.push((1 + usize::from(fence.is_some())).to_string());
                    words.push(self.lock.clone());
                    words.extend(fence);
                }
            }
        }
        words
    }
}
