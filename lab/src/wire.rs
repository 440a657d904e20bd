//! Converts commands of the model to commands of a real server: key names, scripts, milliseconds.

use crate::model::command::{Command, Script, Word};
use crate::model::state::Value;
use std::time::Duration;

/// Reads or writes the protected data with a fencing token.
pub(crate) const GUARDED: &str = include_str!("lua/guarded.lua");

/// The key names and the TTL of a command.
pub(crate) struct Wire {
    pub(crate) lock: String,
    pub(crate) fence: String,
    pub(crate) ttl: Duration,
    pub(crate) long_ttl: Duration,
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
                Word::LongTtl => words.push(self.long_ttl.as_millis().to_string()),
                Word::Limit(limit) => words.push(limit.to_string()),
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
