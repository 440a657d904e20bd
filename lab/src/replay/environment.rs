//! The servers, the keys and the clock of one replay.

use super::ReplayTarget;
use crate::describe;
use crate::model::LockModel;
use crate::model::command::Command;
use crate::model::state::{Action, ReadWrite, Reply, State, TTL, Transition, Value};
use crate::not_replayed::NotReplayed;
use crate::scheme::Op;
use crate::server::ServerConnection;
use crate::wire::{GUARDED, Wire};
use fencelock::backends::BootClock;
use fencelock::{Clock, Moment};
use redis::Value as RedisValue;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A replica reconnects after some seconds: masters wait for more replicas before they send a copy.
const COPYING: Duration = Duration::from_secs(30);

/// The expected and the actual result.
type Difference = (String, String);

pub(super) struct ReplayEnvironment {
    master: ServerConnection,
    replica: Option<Replica>,
    failed_over: bool,
    prefix: String,
    begun: Moment,
    tick: Duration,
    /// The fencing token of each client.
    tokens: [i64; 3],
}

struct Replica {
    server: ServerConnection,
    host: String,
    port: String,
}

impl ReplayEnvironment {
    pub(super) fn set(model: &LockModel<'_>, site: &ReplayTarget, tick: Duration) -> Result<Self, NotReplayed> {
        let mut master = ServerConnection::connect(&site.url)?;
        let prefix = prefix();
        let replica = match (&site.replica, model.is_replicated()) {
            (_, false) => None,
            (None, true) => return Err(NotReplayed::NeedsReplica),
            (Some(url), true) => Some(Replica::cut_off(url, &mut master, &prefix)?),
        };
        master.command(&["SET".to_owned(), format!("{prefix}stock"), "1".to_owned()])?;
        let begun = BootClock.now();
        Ok(Self { master, replica, failed_over: false, prefix, begun, tick, tokens: [0; 3] })
    }

    /// A step close to the next tick may have found a lock that expired early.
    pub(super) fn check_time(&self, now: u8) -> Result<(), NotReplayed> {
        let late = BootClock.now().since(self.begun).saturating_sub(self.tick * u32::from(now));
        if late > self.tick / 4 { Err(NotReplayed::TooSlow) } else { Ok(()) }
    }

    /// Runs a step, and compares the reply and the lock with the model.
    pub(super) fn step(
        &mut self,
        model: &LockModel<'_>,
        before: &State,
        action: Action,
        step: &Transition,
        halt: &AtomicBool,
    ) -> Result<Result<String, Difference>, NotReplayed> {
        let reply = match action {
            Action::Tick => self.wait(step.after.now, halt)?,
            Action::Replicate => self.copy()?,
            Action::Failover => self.fail_over()?,
            Action::Restart(node) => {
                // One server represents three, so a restart deletes the key of one of them.
                let key = self.lock(node);
                self.server().remove(&[key]);
                "restart".to_owned()
            }
            Action::Crash(_) | Action::Lose(_) => String::new(),
            Action::Step(client) | Action::Renew(client) => match model.command(before, action) {
                Some(command) => match self.send(&command, client, step)? {
                    Ok(reply) => reply,
                    Err(difference) => return Ok(Err(difference)),
                },
                None => match self.work(model, before, client, step)? {
                    Ok(reply) => reply,
                    Err(difference) => return Ok(Err(difference)),
                },
            },
        };
        Ok(self.compare(model, step)?.map_or(Ok(reply), Err))
    }

    fn wait(&self, now: u8, halt: &AtomicBool) -> Result<String, NotReplayed> {
        let until = self.begun + self.tick * u32::from(now);
        loop {
            if halt.load(Ordering::Relaxed) {
                return Err(NotReplayed::Stopped);
            }
            let left = until.since(BootClock.now());
            if left.is_zero() {
                return Ok(format!("{} ms", self.tick.as_millis()));
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    fn send(
        &mut self,
        command: &Command,
        client: u8,
        step: &Transition,
    ) -> Result<Result<String, Difference>, NotReplayed> {
        let words = self.words(command);
        let key = self.lock(command.node);
        let answer = self.server().send(&words, &key)?;
        let greatest = self.tokens.into_iter().max().unwrap_or_default();
        let agrees = match (step.reply, &answer) {
            (Reply::Token(0), RedisValue::Int(0)) => true,
            (Reply::Token(1..), RedisValue::Int(token)) => {
                self.tokens[usize::from(client)] = *token;
                *token > greatest
            }
            (expected, answer) => is_same(expected, answer),
        };
        let reply = show(&answer);
        Ok(if agrees { Ok(reply) } else { Err((format!("{:?}", step.reply), reply)) })
    }

    fn words(&self, command: &Command) -> Vec<String> {
        // Half a tick less, so that the expiry is far from both neighbouring ticks.
        let ttl = |ticks: u8| (self.tick * u32::from(ticks)).saturating_sub(self.tick / 2);
        let (lock, fence) = (self.lock(command.node), format!("{}fence", self.prefix));
        let wire = Wire { lock, fence, ttl: ttl(TTL), long_ttl: ttl(2 * TTL) };
        wire.words(command, encoded)
    }

    /// The protected data is also stored on the server.
    fn work(
        &mut self,
        model: &LockModel<'_>,
        before: &State,
        client: u8,
        step: &Transition,
    ) -> Result<Result<String, Difference>, NotReplayed> {
        let op = model.op(before, usize::from(client));
        if !matches!(op, Op::Enter | Op::Write | Op::Read) {
            return Ok(Ok(String::new()));
        }
        let key = format!("{}{}", self.prefix, if model.scheme.is_fenced { "guarded" } else { "stock" });
        let write = if op == Op::Write { "0" } else { "" };
        let words: Vec<String> = match (model.scheme.is_fenced, op) {
            (true, _) => {
                let token = self.tokens[usize::from(client)].to_string();
                ["EVAL", GUARDED, "1", &key, &token, write].map(str::to_owned).into()
            }
            (false, Op::Enter | Op::Read) => ["GET", &key].map(str::to_owned).into(),
            (false, _) => ["SET", &key, write].map(str::to_owned).into(),
        };
        let answer = self.master.command(&words)?;
        let accepted = !matches!(answer, RedisValue::Int(0));
        let reply = show(&answer);
        Ok(if accepted == step.yes { Ok(reply) } else { Err((format!("accepted: {}", step.yes), reply)) })
    }

    fn compare(&mut self, model: &LockModel<'_>, step: &Transition) -> Result<Option<Difference>, NotReplayed> {
        let nodes = if model.scheme.home == crate::scheme::Home::Three { 3 } else { 1 };
        let tick = self.tick;
        let longest = |ticks: u8| (tick * u32::from(ticks)).as_millis() as i64;
        for node in 0..nodes {
            let key = self.lock(node);
            let (value, left) = self.server().content_and_ttl(&key)?;
            let entry = step.after.keys[usize::from(node)];
            let same_value = value == entry.map(|entry| encoded(entry.value));
            let same_life = match entry.map(|entry| entry.ttl) {
                None => left == -2,
                Some(None) => left == -1,
                Some(Some(ttl)) => (0..=longest(ttl)).contains(&left),
            };
            if !(same_value && same_life) {
                return Ok(Some((format!("{entry:?}"), format!("{value:?} with {left} ms left"))));
            }
        }
        Ok(None)
    }

    fn copy(&mut self) -> Result<String, NotReplayed> {
        let key = self.lock(0);
        let replica = self.replica.as_mut().ok_or(NotReplayed::NeedsReplica)?;
        replica.copy(&mut self.master, &key)?;
        Ok("copied".to_owned())
    }

    fn fail_over(&mut self) -> Result<String, NotReplayed> {
        let replica = self.replica.as_mut().ok_or(NotReplayed::NeedsReplica)?;
        replica.server.follow("NO", "ONE")?;
        self.failed_over = true;
        Ok("REPLICAOF NO ONE".to_owned())
    }

    /// The server that clients use.
    fn server(&mut self) -> &mut ServerConnection {
        match &mut self.replica {
            Some(replica) if self.failed_over => &mut replica.server,
            _ => &mut self.master,
        }
    }

    fn lock(&self, node: u8) -> String {
        format!("{}lock{}", self.prefix, node + 1)
    }
}

impl Replica {
    /// Stops replication, so that the replica lags until it is promoted.
    fn cut_off(url: &str, master: &mut ServerConnection, prefix: &str) -> Result<Self, NotReplayed> {
        let mut server = ServerConnection::connect(url)?;
        let begun = BootClock.now();
        let (host, port) = loop {
            match server.master() {
                Err(NotReplayed::NoReplica(_)) if BootClock.now().since(begun) < COPYING => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                found => break found?,
            }
        };
        let mut replica = Self { server, host, port };
        // If the replica belongs to another master, this key never arrives.
        let sign = format!("{prefix}sign");
        master.command(&["SET".to_owned(), sign.clone(), "1".to_owned()])?;
        let arrived = replica.await_same(master, &sign);
        master.remove(&[sign]);
        arrived?;
        replica.cut()?;
        Ok(replica)
    }

    fn cut(&mut self) -> redis::RedisResult<()> {
        // No server listens on this port.
        self.server.follow("127.0.0.1", "1")
    }

    fn copy(&mut self, master: &mut ServerConnection, key: &str) -> Result<(), NotReplayed> {
        self.server.follow(&self.host, &self.port)?;
        self.await_same(master, key)?;
        Ok(self.cut()?)
    }

    fn await_same(&mut self, master: &mut ServerConnection, key: &str) -> Result<(), NotReplayed> {
        let begun = BootClock.now();
        while self.server.value(key)? != master.value(key)? {
            if BootClock.now().since(begun) > COPYING {
                return Err(NotReplayed::NoReplica("a key written to the master does not arrive".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Random, because two replays may begin at the same tick of a coarse clock, or in two containers with the same process id.
fn prefix() -> String {
    format!("fencelock-lab:{{{:016x}}}:", fastrand::u64(..))
}

/// Removes all keys, whatever the result.
impl Drop for ReplayEnvironment {
    fn drop(&mut self) {
        let names = ["lock1", "lock2", "lock3", "stock", "fence", "guarded"];
        let keys = names.map(|name| format!("{}{name}", self.prefix));
        self.master.remove(&keys);
    }
}

/// The replica follows its master again, and discards the changes made meanwhile.
impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.server.follow(&self.host, &self.port);
    }
}

fn encoded(value: Value) -> String {
    match value {
        Value::Nil => String::new(),
        Value::One => "1".to_owned(),
        Value::Id(client) => format!("P{}", client + 1),
        Value::Time(tick) => tick.to_string(),
        Value::Count(left) => left.to_string(),
        Value::Ends(ends) => {
            let holders = (0..).zip(ends).filter(|(_, end)| *end > 0).map(|(client, _)| describe::name(client));
            holders.collect::<Vec<_>>().join(",")
        }
        Value::ReadWrite(lock) => fields(lock),
    }
}

/// The fields of the hash, in order.
fn fields(lock: ReadWrite) -> String {
    let mut fields = vec![format!("mode={}", if lock.writer.is_some() { "write" } else { "read" })];
    fields.extend(lock.writer.map(|writer| format!("{}:write={}", describe::name(writer), lock.writes)));
    let readers = (0..).zip(lock.readers).filter(|(_, reads)| *reads);
    fields.extend(readers.map(|(client, _)| format!("{}=1", describe::name(client))));
    fields.sort();
    fields.join(",")
}

fn is_same(expected: Reply, answer: &RedisValue) -> bool {
    match (expected, answer) {
        (Reply::Int(number), RedisValue::Int(got)) => i64::from(number) == *got,
        (Reply::Ttl(left), RedisValue::Int(got)) => {
            if left < 0 {
                i64::from(left) == *got
            } else {
                *got > 0
            }
        }
        (Reply::Ok, RedisValue::Okay) | (Reply::Value(Value::Nil), RedisValue::Nil) => true,
        (Reply::Value(value), RedisValue::BulkString(got)) => encoded(value).as_bytes() == got.as_slice(),
        _ => false,
    }
}

fn show(answer: &RedisValue) -> String {
    match answer {
        RedisValue::Nil => "nil".to_owned(),
        RedisValue::Int(number) => number.to_string(),
        RedisValue::Okay => "OK".to_owned(),
        RedisValue::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::prefix;
    use std::collections::HashSet;
    use std::sync::Barrier;

    #[test]
    fn replays_that_begin_at_the_same_moment_have_keys_of_their_own() {
        let (begin, threads) = (&Barrier::new(8), 8);
        let prefixes: HashSet<String> = std::thread::scope(|scope| {
            let names = |_| {
                begin.wait();
                (0..1000).map(|_| prefix()).collect::<Vec<_>>()
            };
            let replays: Vec<_> = (0..threads).map(|thread| scope.spawn(move || names(thread))).collect();
            replays.into_iter().flat_map(|replay| replay.join().unwrap()).collect()
        });
        assert_eq!(prefixes.len(), threads * 1000);
    }
}
