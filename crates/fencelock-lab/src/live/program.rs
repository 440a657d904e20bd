//! Runs the steps of a scheme on a real server.

use super::job::LiveJob;
use super::ledger::FOREVER;
use super::work::{AttemptResult, Work, clock};
use super::{CONCURRENCY, NotRun};
use crate::model::command::{Command, command_of};
use crate::model::state::{TTL, Value};
use crate::scheme::{Content, Op, Scheme};
use crate::server::ServerConnection;
use crate::wire::Wire;
use redis::{RedisResult, Value as RedisValue};
use std::time::Duration;

/// The retry interval: five milliseconds, as in the article.
pub(super) const PAUSE: Duration = Duration::from_millis(5);
/// The number of attempts of a retrying scheme: three, as in the article.
const TRIES: u8 = 3;

pub(super) struct Program {
    scheme: Scheme,
    server: ServerConnection,
    prefix: String,
    ttl: Duration,
    /// The permits of a semaphore.
    permits: u8,
    /// The number of this worker among those of all processes.
    number: usize,
    /// Attempts so far.
    attempts: u64,
}

/// The state of a client during an attempt.
#[derive(Default)]
struct ClientState {
    id: String,
    /// The value that was read.
    seen: Option<String>,
    votes: u8,
    /// When the first request was sent.
    begun: u64,
    tries: u8,
    entered: bool,
    refused: bool,
}

impl Program {
    pub(super) fn new(scheme: Scheme, job: &LiveJob, worker: u32) -> Result<Self, NotRun> {
        let (server, prefix) = (job.connect()?, job.prefix.clone());
        let number = (job.process * CONCURRENCY + worker) as usize;
        Ok(Self { scheme, server, prefix, ttl: job.load.ttl, permits: job.load.permits, number, attempts: 0 })
    }

    pub(super) fn attempt(&mut self, account: u32, work: &mut Work<'_>) -> Result<AttemptResult, NotRun> {
        self.attempts += 1;
        let mut memory = ClientState { id: format!("{}-{}", self.number, self.attempts), ..ClientState::default() };
        let mut at = 0;
        loop {
            let line = self.scheme.lines[at];
            let yes = match line.op {
                Op::Busy => return Ok(AttemptResult::Busy),
                Op::Done if memory.refused => return Ok(AttemptResult::Refused),
                // It got too few votes.
                Op::Done if !memory.entered => return Ok(AttemptResult::Busy),
                Op::Done => return Ok(AttemptResult::Served),
                Op::Enter => self.enter(account, &memory, work)?,
                Op::Write => work.end()?,
                op => self.execute(op, account, &mut memory)?,
            };
            memory.entered |= line.op == Op::Enter;
            memory.refused |= !yes && matches!(line.op, Op::Enter | Op::Write);
            at = usize::from(if yes { line.yes } else { line.no });
        }
    }

    fn enter(&mut self, account: u32, memory: &ClientState, work: &mut Work<'_>) -> Result<bool, NotRun> {
        let is_renewed = self.scheme.is_renewed;
        let mut renew = || {
            if is_renewed {
                self.send(&Command::renewal(Value::Id(0)), account, memory)?;
            }
            Ok(())
        };
        work.begin(&[], &mut renew)
    }

    fn execute(&mut self, op: Op, account: u32, memory: &mut ClientState) -> Result<bool, NotRun> {
        match op {
            Op::SetNode(0) => (memory.votes, memory.begun) = (0, clock()),
            Op::HasMajority => return Ok(memory.votes > 1 && clock() < memory.begun + millis(self.ttl)),
            Op::HasPassed => {
                let deadline = memory.seen.as_ref().and_then(|seen| seen.parse::<u64>().ok());
                return Ok(deadline.is_none_or(|deadline| deadline <= clock()));
            }
            Op::Retry => {
                memory.tries += 1;
                std::thread::sleep(PAUSE);
                return Ok(memory.tries < TRIES);
            }
            _ => {}
        }
        // The values of this client: its id is unique, and its clock starts with its request.
        let command = command_of(op, self.number, self.permits, |content| match content {
            Content::One => Value::One,
            Content::Id => Value::Id(0),
            Content::Now => Value::Time(0),
            Content::Deadline => Value::Time(TTL),
        });
        let command = command.ok_or_else(|| NotRun::Scheme(self.scheme.id.to_owned()))?;
        let answer = self.send(&command, account, memory)?;
        Ok(is_success(op, &answer, memory))
    }

    fn send(&mut self, command: &Command, account: u32, memory: &ClientState) -> Result<RedisValue, NotRun> {
        // One server represents three, with a key for each.
        let lock = format!("{}lock{}:{account}", self.prefix, command.node + 1);
        let fence = format!("{}fence:{account}", self.prefix);
        let wire = Wire { lock, fence, ttl: self.ttl, long_ttl: self.ttl * 2 };
        let tick = millis(self.ttl) / u64::from(TTL);
        let words = wire.words(command, |value| match value {
            Value::Nil => String::new(),
            Value::One => "1".to_owned(),
            Value::Id(_) => memory.id.clone(),
            Value::Time(ticks) => (clock() + tick * u64::from(ticks)).to_string(),
            Value::Count(_) | Value::Ends(_) | Value::ReadWrite(_) => unreachable!("only of semaphores and readers"),
        });
        Ok(self.send_with_expiry(&words, &wire.lock)?)
    }

    /// Sends a command. A lock without a TTL gets one that the scheme cannot see, in case no process cleans up.
    fn send_with_expiry(&mut self, words: &[String], lock: &str) -> RedisResult<RedisValue> {
        let forever = FOREVER.to_string();
        match words.first().map(String::as_str) {
            Some("SETNX") => {
                let end = ["NX", "EX", &forever].map(str::to_owned);
                let words: Vec<_> =
                    std::iter::once("SET".to_owned()).chain(words[1..].iter().cloned()).chain(end).collect();
                self.server.send(&words, lock)
            }
            Some("GETSET") => {
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                let (before, _): (RedisValue, i64) = self.server.transaction(&[&words, &["EXPIRE", lock, &forever]])?;
                Ok(before)
            }
            Some("PTTL") => Ok(match self.server.send(words, lock)? {
                RedisValue::Int(left) if left > i64::from(FOREVER) * 500 => RedisValue::Int(-1),
                answer => answer,
            }),
            Some("EVAL") if self.scheme.is_semaphore() => {
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                let (taken, _): (RedisValue, i64) = self.server.transaction(&[&words, &["EXPIRE", lock, &forever]])?;
                Ok(taken)
            }
            _ => self.server.send(words, lock),
        }
    }
}

/// Whether a reply means success, as in the model.
fn is_success(op: Op, answer: &RedisValue, memory: &mut ClientState) -> bool {
    let text = match answer {
        RedisValue::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    match op {
        Op::GetIsMine => text.as_ref() == Some(&memory.id),
        Op::GetDeadline => {
            memory.seen = text;
            true
        }
        Op::GetSetIsSame => text == memory.seen,
        Op::HasNoTtl => *answer == RedisValue::Int(-1),
        Op::SetNode(_) => {
            memory.votes += u8::from(*answer == RedisValue::Okay);
            *answer == RedisValue::Okay
        }
        _ => matches!(answer, RedisValue::Okay | RedisValue::Int(1..)),
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
