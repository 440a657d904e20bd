use crate::child::Change;
use fencelock::Moment;
use rustix::process::{Pid, Signal};
use std::time::Duration;

/// When the guardian acts on its own, on the clock of the lease. Until then it leaves everything to the wrapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadlines {
    pub(crate) term: Moment,
    pub(crate) kill: Moment,
}

/// What a guardian says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The command runs as this process.
    Started(Pid),
    /// The command cannot be started, and why: a number of the system.
    Failed(i32),
    /// Something became of the command.
    Changed(Change),
    /// The wrapper was late, so the guardian has sent this signal to everything below it.
    Late(Signal),
}

/// What the wrapper says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Wait(Deadlines),
    /// The guardian may go.
    Dismissed,
}

/// Deadlines that are as close are the same: they are computed anew each time.
const ABOUT: Duration = Duration::from_millis(1);

impl Deadlines {
    pub(crate) const NEVER: Self = Self { term: Moment::NEVER, kill: Moment::NEVER };

    pub(super) fn is_about(self, other: Self) -> bool {
        let close = |one: Moment, two: Moment| one == two || one.since(two).max(two.since(one)) <= ABOUT;
        close(self.term, other.term) && close(self.kill, other.kill)
    }
}

impl Word {
    pub(super) fn encode(self) -> [u8; 16] {
        let Deadlines { term, kill } = match self {
            Self::Wait(deadlines) => deadlines,
            // No command has begun before the clock.
            Self::Dismissed => Deadlines { term: Moment::from_micros(0), kill: Moment::from_micros(0) },
        };
        let mut message = [0; 16];
        message[..8].copy_from_slice(&term.as_micros().to_le_bytes());
        message[8..].copy_from_slice(&kill.as_micros().to_le_bytes());
        message
    }

    pub(super) fn decode(message: [u8; 16]) -> Self {
        if message == [0; 16] {
            return Self::Dismissed;
        }
        let number = u128::from_le_bytes(message);
        let moment = |bits: u128| Moment::from_micros(u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(u64::MAX));
        Self::Wait(Deadlines { term: moment(number), kill: moment(number >> 64) })
    }
}

impl News {
    pub(super) fn encode(self) -> [u8; 5] {
        let (tag, number) = match self {
            Self::Started(pid) => (b'p', pid.as_raw_nonzero().get()),
            Self::Failed(error) => (b'f', error),
            Self::Changed(Change::Exited(code)) => (b'x', i32::from(code)),
            Self::Changed(Change::Killed(signal)) => (b'k', signal),
            Self::Changed(Change::Stopped(signal)) => (b's', signal),
            Self::Late(signal) => (b'l', signal.as_raw()),
        };
        let mut message = [tag; 5];
        message[1..].copy_from_slice(&number.to_le_bytes());
        message
    }

    pub(super) fn decode([tag, number @ ..]: [u8; 5]) -> Option<Self> {
        let number = i32::from_le_bytes(number);
        Some(match tag {
            b'p' => Self::Started(Pid::from_raw(number)?),
            b'f' => Self::Failed(number),
            b'x' => Self::Changed(Change::Exited(u8::try_from(number).ok()?)),
            b'k' => Self::Changed(Change::Killed(number)),
            b's' => Self::Changed(Change::Stopped(number)),
            b'l' => Self::Late(Signal::from_named_raw(number)?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let pid = Pid::from_raw(4242).unwrap();
        for news in [
            News::Started(pid),
            News::Failed(2),
            News::Changed(Change::Exited(255)),
            News::Changed(Change::Killed(64)),
            News::Changed(Change::Stopped(20)),
            News::Late(Signal::KILL),
        ] {
            assert_eq!(News::decode(news.encode()), Some(news));
        }
        let deadlines = Deadlines { term: Moment::from_micros(7), kill: Moment::NEVER };
        for word in [Word::Wait(deadlines), Word::Wait(Deadlines::NEVER), Word::Dismissed] {
            assert_eq!(Word::decode(word.encode()), word);
        }
    }

    #[test]
    fn deadlines_that_hardly_moved_are_not_told_again() {
        let at = |ms: u64| Deadlines { term: Moment::from_micros(ms * 1000), kill: Moment::NEVER };
        assert!(at(5).is_about(at(6)) && at(6).is_about(at(5)));
        assert!(!at(5).is_about(at(7)) && !at(5).is_about(Deadlines::NEVER));
    }
}
