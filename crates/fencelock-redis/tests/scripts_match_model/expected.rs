//! The expected reply of the server.

use fencelock_model as model;
use fencelock_testkit::{Reply, ServerVersion};

/// What the server must say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Reply(Reply),
    /// The first reply, or the second one, which is the abbreviation that the common case of a script may send.
    Either(Reply, Reply),
    /// An error that contains this word.
    Error(&'static str),
    /// Any reply except an error.
    Success,
}

impl Expected {
    pub(super) fn allows(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (Self::Error(word), Reply::Error(why)) => why.contains(word),
            (Self::Reply(expected), reply) => expected == reply,
            (Self::Either(expected, abbreviated), reply) => expected == reply || abbreviated == reply,
            (Self::Success, reply) => !matches!(reply, Reply::Error(_) | Reply::NoAnswer(_)),
            (Self::Error(_), _) => false,
        }
    }

    /// Whether this is the abbreviated reply.
    pub(super) fn abbreviates(&self, reply: &Reply) -> bool {
        matches!(self, Self::Either(_, abbreviated) if abbreviated == reply)
    }

    /// The reply of a script that may abbreviate it.
    pub(super) fn or_abbreviated(self, abbreviated: Option<Reply>) -> Self {
        match (self, abbreviated) {
            (Self::Reply(reply), Some(abbreviated)) => Self::Either(reply, abbreviated),
            (expected, _) => expected,
        }
    }

    pub(super) fn or_refused<T>(answer: Result<T, model::ScriptError>, reply: impl FnOnce(T) -> Reply) -> Self {
        match answer {
            Ok(answer) => Self::Reply(reply(answer)),
            Err(refused) => Self::refused(refused),
        }
    }

    pub(super) fn refused(refused: model::ScriptError) -> Self {
        match refused {
            model::ScriptError::NoMoreFences => Self::Error("the fencing token of this key has reached 2^53"),
            model::ScriptError::Full => Self::Error("OOM"),
            model::ScriptError::Time => Self::Error(refused_command()),
        }
    }
}

/// The error of this server for a command that a script may not use.
pub(super) fn refused_command() -> &'static str {
    ServerVersion::of_tests().map_or("no server says this", ServerVersion::denied_command_error)
}
