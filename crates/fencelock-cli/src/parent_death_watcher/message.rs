use crate::change::Change;
use fencelock::Moment;
use rustix::process::{Pid, Signal};
use std::time::Duration;

/// The times at which the watcher acts if the wrapper does not, on the clock of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadlines {
    pub(crate) term: Moment,
    pub(crate) kill: Moment,
}

/// A message of the watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatcherMessage {
    /// The command runs as this process.
    Started(Pid),
    /// The command cannot be started; an error number of the system.
    Failed(i32),
    /// The state of the command has changed.
    Changed(Change),
    /// The wrapper was late, so the watcher sent this signal to all descendants.
    Late(Signal),
}

/// A message of the wrapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrapperMessage {
    Wait(Deadlines),
    /// The watcher can exit.
    Exit,
}

/// Deadlines that differ by at most this are equal: they are recomputed each time.
const TOLERANCE: Duration = Duration::from_millis(1);

impl Deadlines {
    pub(crate) const NEVER: Self = Self { term: Moment::NEVER, kill: Moment::NEVER };

    pub(super) fn is_close_to(self, other: Self) -> bool {
        let close = |one: Moment, two: Moment| one == two || one.since(two).max(two.since(one)) <= TOLERANCE;
        close(self.term, other.term) && close(self.kill, other.kill)
    }
}

impl WrapperMessage {
    pub(super) fn encode(self) -> [u8; 16] {
        let Deadlines { term, kill } = match self {
            Self::Wait(deadlines) => deadlines,
            // Zero is not a valid deadline, so it encodes the exit message.
            Self::Exit => Deadlines { term: Moment::from_micros(0), kill: Moment::from_micros(0) },
        };
        let mut message = [0; 16];
        message[..8].copy_from_slice(&term.as_micros().to_le_bytes());
        message[8..].copy_from_slice(&kill.as_micros().to_le_bytes());
        message
    }

    pub(super) fn decode(message: [u8; 16]) -> Self {
        if message == [0; 16] {
            return Self::Exit;
        }
        let number = u128::from_le_bytes(message);
        let moment = |bits: u128| Moment::from_micros(u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(u64::MAX));
        Self::Wait(Deadlines { term: moment(number), kill: moment(number >> 64) })
    }
}

impl WatcherMessage {
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
    fn messages_survive_encoding() {
        let pid = Pid::from_raw(4242).unwrap();
        for next_message in [
            WatcherMessage::Started(pid),
            WatcherMessage::Failed(2),
            WatcherMessage::Changed(Change::Exited(255)),
            WatcherMessage::Changed(Change::Killed(64)),
            WatcherMessage::Changed(Change::Stopped(20)),
            WatcherMessage::Late(Signal::KILL),
        ] {
            assert_eq!(WatcherMessage::decode(next_message.encode()), Some(next_message));
        }
        let deadlines = Deadlines { term: Moment::from_micros(7), kill: Moment::NEVER };
        for message in [WrapperMessage::Wait(deadlines), WrapperMessage::Wait(Deadlines::NEVER), WrapperMessage::Exit] {
            assert_eq!(WrapperMessage::decode(message.encode()), message);
        }
    }

    #[test]
    fn nearly_equal_deadlines_are_not_sent_again() {
        let at = |ms: u64| Deadlines { term: Moment::from_micros(ms * 1000), kill: Moment::NEVER };
        assert!(at(5).is_close_to(at(6)) && at(6).is_close_to(at(5)));
        assert!(!at(5).is_close_to(at(7)) && !at(5).is_close_to(Deadlines::NEVER));
    }
}
