//! Looks on a server for what this version cannot read.

use super::Redis;
use super::batch::send_batch;
use super::script;
use super::session::Session;
use super::unread::{Unread, later_value};
use super::{reply::Reply, script::WIRE};
use fencelock_core::{Fault, Finding, Key, Level, Unknown};
use redis::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Where the search ends: doctor answers in a few seconds, whatever the database holds.
const PAGES: usize = 1000;
const LOCKS: usize = 10_000;
const SUBJECT: &str = "wire";

/// What is on a server and cannot be read, by lock.
#[derive(Debug, Default)]
struct Found {
    seen: BTreeSet<Key>,
    waiters: BTreeMap<String, Unread>,
    values: BTreeMap<String, String>,
    /// Whether there is more than was looked at.
    more: bool,
}

pub(super) async fn examine(redis: &Redis, session: &Session) -> Finding {
    match Found::on(redis, session).await {
        Ok(found) => found.finding(),
        Err(cause) if cause.nodes().iter().all(|node| node.fault == Fault::Denied) => Finding::new(
            Level::Note,
            SUBJECT,
            "SCAN is refused, so what a later version may have written cannot be looked for",
            "allow SCAN to this user, or ask an operator to run doctor",
        ),
        Err(cause) => Finding::new(Level::Warning, SUBJECT, cause.to_string(), "look at the server"),
    }
}

impl Found {
    async fn on(redis: &Redis, session: &Session) -> Result<Self, Unknown> {
        let (mut found, mut cursor) = (Self::default(), 0);
        for _ in 0..PAGES {
            let (next, names) = redis.page(session, cursor, "*").await?;
            // A lock with a line may have no fence yet, and one with a fence has mostly no line.
            let key = |name: &Vec<u8>| redis.key_of(name, "line").or_else(|| redis.key_of(name, "fence"));
            let new: BTreeSet<Key> = names.iter().filter_map(key).filter(|key| !found.seen.contains(key)).collect();
            found.look(redis, session, &new).await?;
            found.seen.extend(new);
            if next == 0 {
                return Ok(found);
            }
            if found.seen.len() >= LOCKS {
                break;
            }
            cursor = next;
        }
        found.more = true;
        Ok(found)
    }

    async fn look(&mut self, redis: &Redis, session: &Session, keys: &BTreeSet<Key>) -> Result<(), Unknown> {
        let wires: Vec<String> = keys.iter().map(|key| redis.link.target.wire(key).into_owned()).collect();
        if wires.is_empty() {
            return Ok(());
        }
        let calls = wires.iter().map(|wire| script::unread(wire)).collect();
        let batch = send_batch(session, calls, None).await.map_err(|error| redis.unknown(&error))?;
        for (wire, answer) in wires.into_iter().zip(batch.answers) {
            self.note(redis.link.node(), wire, answer.map_err(|error| redis.unknown(&error))?)?;
        }
        Ok(())
    }

    fn note(&mut self, node: &str, wire: String, answer: Value) -> Result<(), Unknown> {
        let unread = Unread::of(&answer);
        if let Some(value) = later_value(&Reply::new(node, answer)?.text()?) {
            self.values.insert(wire.clone(), value);
        }
        if let Some(unread) = unread {
            self.waiters.insert(wire, unread);
        }
        Ok(())
    }

    fn finding(self) -> Finding {
        let looked =
            if self.more { format!(" of the {} locks that were looked at", self.seen.len()) } else { String::new() };
        let mut told = Vec::new();
        let mut advice = String::new();
        if let Some((wire, unread)) = self.waiters.first_key_value() {
            advice = Unread::advice(wire);
            told.push(format!(
                "{} locks with waiters that cannot be read: {}",
                self.waiters.len(),
                unread.describe(wire)
            ));
        }
        if let Some((wire, value)) = self.values.first_key_value() {
            if advice.is_empty() {
                "use a later fencelock here".clone_into(&mut advice);
            }
            let many = self.values.len();
            told.push(format!(
                "{many} keys with values that cannot be read, which count as busy: {wire:?} has {value}"
            ));
        }
        if told.is_empty() {
            return Finding::fine(
                SUBJECT,
                format!("all{looked} can be read by this program, which writes version {WIRE}"),
            );
        }
        Finding::new(Level::Warning, SUBJECT, format!("{}{looked}", told.join("; ")), advice)
    }
}
