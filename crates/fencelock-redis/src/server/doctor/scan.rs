//! Scans a server for values that this version cannot read.

use crate::connection::batch::send_batch;
use crate::connection::fault::is_about_a_key;
use crate::connection::session::Session;
use crate::scripts::reply::Reply;
use crate::scripts::reply::Unread;
use crate::scripts::script::{self, COMPLETION_KEY};
use crate::scripts::wire::{WIRE, later_value};
use crate::server::list::{key_of, page};
use crate::server::{Redis, completions};
use fencelock_core::{Fault, Finding, Key, Unknown, side_key};
use redis::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The limits of the scan, so that `doctor` takes a few seconds for any database.
const PAGES: usize = 1000;
const LOCKS: usize = 10_000;
/// How many of each kind are named.
const NAMED: usize = 5;
const SUBJECT: &str = "wire";
const LATER: &str = "use a later fencelock here";

/// The unreadable values on a server.
#[derive(Debug, Default)]
struct Found {
    seen: BTreeSet<Key>,
    /// By lock: waiters, values and completions.
    unread: [BTreeMap<String, String>; 3],
    /// Whether the scan ended at a limit.
    more: bool,
}

pub(crate) async fn diagnose(redis: &Redis, session: &Session) -> Finding {
    let not_found = |why: &str, advice: &str| {
        Finding::note(SUBJECT, format!("{why}, so values that this version cannot read are not found"), advice)
    };
    match search(redis, session).await {
        Ok(found) => found.finding(),
        Err(cause) if cause.nodes().iter().any(|node| is_about_a_key(&node.detail)) => {
            let advice = "set prefix= in the URL, or run doctor as an operator";
            not_found("this user may not read the locks of other prefixes", advice)
        }
        Err(cause) if cause.nodes().iter().all(|node| node.fault == Fault::Denied) => {
            not_found("this user may not SCAN", "run doctor as an operator")
        }
        Err(_) if session.server_info.is_plain => {
            not_found("the proxy has no SCAN", "run doctor with the URL of the server")
        }
        Err(cause) => Finding::warning(SUBJECT, cause.to_string(), "check the server"),
    }
}

async fn search(redis: &Redis, session: &Session) -> Result<Found, Unknown> {
    let (mut found, mut cursor) = (Found::default(), 0);
    for _ in 0..PAGES {
        let (next, names) = page(redis, session, cursor, "*").await?;
        // A lock with a queue may have no fence yet, and most locks with a fence have no queue. A completion outlives both.
        let key = |name: &Vec<u8>| ["line", "fence", COMPLETION_KEY].iter().find_map(|what| key_of(redis, name, what));
        let new: BTreeSet<Key> = names.iter().filter_map(key).filter(|key| !found.seen.contains(key)).collect();
        let redis_keys: Vec<_> = new.iter().map(|key| redis.link.target.redis_key(key).into_owned()).collect();
        if !redis_keys.is_empty() {
            let calls = redis_keys.iter().map(|redis_key| script::unread(redis_key)).collect();
            let batch = send_batch(session, calls, None).await.map_err(|error| redis.unknown(&error))?;
            for (redis_key, answer) in redis_keys.iter().zip(batch.answers) {
                found.note(redis.link.node(), redis_key, answer.map_err(|error| redis.unknown(&error))?)?;
            }
        }
        found.seen.extend(new);
        found.more = next != 0;
        if !found.more || found.seen.len() >= LOCKS {
            break;
        }
        cursor = next;
    }
    Ok(found)
}

impl Found {
    fn note(&mut self, node: &str, redis_key: &str, answer: Value) -> Result<(), Unknown> {
        let waiter = Unread::of(&answer).map(|unread| unread.describe(redis_key));
        let mut reply = Reply::new(node, answer)?;
        let (value, kind, completion) = (reply.text()?, reply.text()?, reply.text()?);
        let value = later_value(&value).map(|value| format!("{redis_key:?} is {value}"));
        let completion = (!kind.is_empty()).then(|| completions::described(redis_key, &kind, &completion));
        for (unread, text) in self.unread.iter_mut().zip([waiter, value, completion]) {
            unread.extend(text.map(|text| (redis_key.to_owned(), text)));
        }
        Ok(())
    }

    fn finding(&self) -> Finding {
        type Remedy = fn(&str) -> String;
        let locks = |many| if many == 1 { "1 lock".to_owned() } else { format!("{many} locks") };
        let checked = format!(" (of {} that were checked)", locks(self.seen.len()));
        let checked = if self.more { &checked } else { "" };
        let kinds: [(&str, Remedy); 3] = [
            ("waiters whose entries cannot be read", Unread::advice),
            ("values that cannot be read, which count as held", |_| LATER.to_owned()),
            ("completions that cannot be read, so their work does not run", |redis_key| {
                format!("{LATER}; or, if the work may run again: DEL {:?}", side_key(redis_key, COMPLETION_KEY))
            }),
        ];
        let (mut problems, mut advice) = (Vec::new(), Vec::new());
        for (unread, (what, remedy)) in self.unread.iter().zip(kinds) {
            let Some((first, _)) = unread.first_key_value() else { continue };
            let mut each: Vec<_> = unread.values().take(NAMED).cloned().collect();
            if unread.len() > NAMED {
                each.push(format!("and {} more", unread.len() - NAMED));
            }
            problems.push(format!("{}{checked} with {what}: {}", locks(unread.len()), each.join(", ")));
            advice.push(remedy(first));
        }
        if problems.is_empty() {
            let text = format!("no lock{checked} has a value that this version, {WIRE}, cannot read");
            return Finding::fine(SUBJECT, text);
        }
        Finding::warning(SUBJECT, problems.join("; "), advice.join("; "))
    }
}
