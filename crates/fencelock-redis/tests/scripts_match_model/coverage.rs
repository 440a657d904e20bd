//! Coverage: a run that does not reach a situation proves nothing about it.

use super::expected::{Expected, refused_command};
use super::step::Around;
use fencelock_model::Delivery;
use fencelock_testkit::Reply;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Coverage(BTreeMap<String, u64>);

impl Coverage {
    fn see(&mut self, what: &str, times: usize) {
        *self.0.entry(what.to_owned()).or_default() += times as u64;
    }

    /// Adds the coverage of another run.
    pub(super) fn extend(&mut self, other: Self) {
        for (what, times) in other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    pub(super) fn hand_off(&mut self, delivery: Delivery) {
        self.see(&format!("hand-off {delivery:?}"), 1);
    }

    pub(super) fn answer(&mut self, answer: &Expected) {
        match answer {
            Expected::Reply(Reply::Array(words)) | Expected::Either(Reply::Array(words), _) => {
                self.see(words[0].text().unwrap_or_default(), 1);
                self.see("an entry that cannot be read", usize::from(matches!(words.last(), Some(Reply::Array(_)))));
            }
            Expected::Reply(Reply::Int(number)) => self.see(&number.to_string(), 1),
            Expected::Error(word) => self.see(word, 1),
            Expected::Reply(_) | Expected::Either(..) | Expected::Success => {}
        }
    }

    pub(super) fn abbreviated(&mut self, replies: usize) {
        self.see("an abbreviated reply", replies);
    }

    pub(super) fn around(&mut self, around: &Around, sent_in_full: usize) {
        self.see("NOSCRIPT", sent_in_full);
        self.see("restart", usize::from(around.restarts));
        self.see("flush", usize::from(around.flushed));
        self.see("time refused", usize::from(around.time_refused));
        self.see("clock set back", usize::from(around.by_us < 0));
    }

    /// # Panics
    /// If a situation was not reached.
    pub(super) fn must_be_complete(&self) {
        let answers = [
            "granted",
            "yours",
            "queued",
            "busy",
            "gone",
            "more",
            "unreadable",
            "renewed",
            "released",
            "absent",
            "taken",
            "class",
            "noclock",
            "downgraded",
            "resized",
            "0",
            "1",
        ];
        let guarded =
            ["handshake", "nodeset", "quarantined", "version", "new", "changed", "unchanged", refused_command()];
        let errors = ["the fencing token of this key has reached 2^53", "OOM", "WRONGTYPE", "NOSCRIPT"];
        let messages = [
            "an abbreviated reply",
            "an entry that cannot be read",
            "hand-off Received",
            "hand-off NoSubscriber",
            "hand-off Denied",
        ];
        let around = ["restart", "time refused", "clock set back", "flush"];
        for what in answers.iter().chain(&errors).chain(&messages).chain(&around).chain(&guarded) {
            assert!(self.0.get(*what).is_some_and(|times| *times > 0), "{what} never happened: {:#?}", self.0);
        }
    }
}
