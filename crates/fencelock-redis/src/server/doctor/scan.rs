//! Scans a server for values that this version cannot read.

use crate::connection::batch::send_batch;
use crate::connection::fault::is_about_a_key;
use crate::connection::session::Session;
use crate::scripts::reply::Reply;
use crate::scripts::script::{self, COMPLETION_KEY};
use crate::scripts::unread::Unread;
use crate::scripts::wire::{WIRE, later_value};
use crate::server::list::{key_of, page};
use crate::server::{Redis, completions};
use fencelock_core::{Fault, Finding, Key, Level, Unknown, side_key};
use redis::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The limits of the scan, so that `doctor` takes a few seconds for any database.
const PAGES: usize = 1000;
const LOCKS: usize = 10_000;
/// How many of each kind are named.
const NAMED: usize = 5;
const SUBJECT: &str = "wire";

/// The unreadable values on a server, by lock.
#[derive(Debug, Default)]
struct Found {
    seen: BTreeSet<Key>,
    waiters: BTreeMap<String, Unread>,
    values: BTreeMap<String, String>,
    completions: BTreeMap<String, String>,
    /// Whether the scan ended at a limit.
    more: bool,
}

pub(crate) async fn diagnose(redis: &Redis, session: &Session) -> Finding {
    match Found::on(redis, session).await {
        Ok(found) => found.finding(),
        Err(cause) if cause.nodes().iter().any(|node| is_about_a_key(&node.detail)) => Finding::new(
            Level::Note,
            SUBJECT,
            "this user may not read the locks of other prefixes, so values that this version cannot read are not found",
            "set prefix= in the URL, or run doctor as an operator",
        ),
        Err(cause) if cause.nodes().iter().all(|node| node.fault == Fault::Denied) => Finding::new(
            Level::Note,
            SUBJECT,
            "this user may not SCAN, so values that this version cannot read are not found",
            "run doctor as an operator",
        ),
        Err(_) if session.server_info.is_plain => Finding::new(
            Level::Note,
            SUBJECT,
            "the proxy has no SCAN, so values that this version cannot read are not found",
            "run doctor with the URL of the server",
        ),
        Err(cause) => Finding::new(Level::Warning, SUBJECT, cause.to_string(), "check the server"),
    }
}

impl Found {
    async fn on(redis: &Redis, session: &Session) -> Result<Self, Unknown> {
        let (mut found, mut cursor) = (Self::default(), 0);
        for _ in 0..PAGES {
            let (next, names) = page(redis, session, cursor, "*").await?;
            // A lock with a queue may have no fence yet, and most locks with a fence have no queue. A completion outlives both.
            let key =
                |name: &Vec<u8>| ["line", "fence", COMPLETION_KEY].iter().find_map(|what| key_of(redis, name, what));
            let new: BTreeSet<Key> = names.iter().filter_map(key).filter(|key| !found.seen.contains(key)).collect();
            found.inspect(redis, session, &new).await?;
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

    async fn inspect(&mut self, redis: &Redis, session: &Session, keys: &BTreeSet<Key>) -> Result<(), Unknown> {
        let redis_keys: Vec<String> = keys.iter().map(|key| redis.link.target.redis_key(key).into_owned()).collect();
        if redis_keys.is_empty() {
            return Ok(());
        }
        let calls = redis_keys.iter().map(|redis_key| script::unread(redis_key)).collect();
        let batch = send_batch(session, calls, None).await.map_err(|error| redis.unknown(&error))?;
        for (redis_key, answer) in redis_keys.into_iter().zip(batch.answers) {
            self.note(redis.link.node(), redis_key, answer.map_err(|error| redis.unknown(&error))?)?;
        }
        Ok(())
    }

    fn note(&mut self, node: &str, redis_key: String, answer: Value) -> Result<(), Unknown> {
        let unread = Unread::of(&answer);
        let mut reply = Reply::new(node, answer)?;
        let (value, kind, completion) = (reply.text()?, reply.text()?, reply.text()?);
        if let Some(value) = later_value(&value) {
            self.values.insert(redis_key.clone(), value);
        }
        if !kind.is_empty() {
            self.completions.insert(redis_key.clone(), completions::described(&redis_key, &kind, &completion));
        }
        if let Some(unread) = unread {
            self.waiters.insert(redis_key, unread);
        }
        Ok(())
    }

    fn finding(self) -> Finding {
        let of_checked =
            if self.more { format!(" (of {} that were checked)", locks(self.seen.len())) } else { String::new() };
        let (mut problems, mut advice) = (Vec::new(), Vec::new());
        if let Some((redis_key, _)) = self.waiters.first_key_value() {
            let many = locks(self.waiters.len());
            let each = named(&self.waiters, |redis_key, unread| unread.describe(redis_key));
            problems.push(format!("{many}{of_checked} with waiters whose entries cannot be read: {each}"));
            advice.push(Unread::advice(redis_key));
        }
        if !self.values.is_empty() {
            let many = locks(self.values.len());
            let each = named(&self.values, |redis_key, value| format!("{redis_key:?} is {value}"));
            problems.push(format!("{many}{of_checked} with values that cannot be read, which count as held: {each}"));
            advice.push("use a later fencelock here".to_owned());
        }
        if let Some((redis_key, _)) = self.completions.first_key_value() {
            let many = locks(self.completions.len());
            let each = named(&self.completions, |_, completion| completion.clone());
            problems.push(format!(
                "{many}{of_checked} with completions that cannot be read, so their work does not run: {each}"
            ));
            let name = side_key(redis_key, COMPLETION_KEY);
            advice.push(format!("use a later fencelock here; or, if the work may run again: DEL {name:?}"));
        }
        if problems.is_empty() {
            let text = format!("no lock{of_checked} has a value that this version, {WIRE}, cannot read");
            return Finding::fine(SUBJECT, text);
        }
        Finding::new(Level::Warning, SUBJECT, problems.join("; "), advice.join("; "))
    }
}

/// The first of them, and how many more there are.
fn named<T>(found: &BTreeMap<String, T>, describe: impl Fn(&str, &T) -> String) -> String {
    let mut each: Vec<_> = found.iter().take(NAMED).map(|(redis_key, one)| describe(redis_key, one)).collect();
    if found.len() > NAMED {
        each.push(format!("and {} more", found.len() - NAMED));
    }
    each.join(", ")
}

fn locks(many: usize) -> String {
    if many == 1 { "1 lock".to_owned() } else { format!("{many} locks") }
}
