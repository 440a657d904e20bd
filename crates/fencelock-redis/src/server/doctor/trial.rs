//! Tries what a lock does on this server, with the scripts of a lock, each in `lua/trial.lua`.

use crate::connection::batch::send_batch;
use crate::connection::fault::{fault_of, is_about_a_key, words};
use crate::connection::link::wake_channels;
use crate::connection::session::Session;
use crate::hash_slot::number_in_slot;
use crate::scripts::quarantine::{EpochCheck, MarkerState};
use crate::scripts::reply::{Reply, Unread};
use crate::scripts::script;
use crate::scripts::script::COMPLETION_KEY;
use crate::scripts::side_key::side_key;
use crate::scripts::wire::{WIRE, later_value};
use crate::server::list::{key_of, lists_a_page, page};
use crate::server::{Redis, completions};
use crate::url::target::Target;
use fencelock_core::{BoxFuture, Fault, Feature, Finding, Key, Level, Topology, Trial, Tried, Unknown, lock};
use redis::{Cmd, RedisError, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) const OTHER_KEY: &str =
    "name a key that this user may use and no program uses: doctor --key KEY; or set prefix= in the URL";

/// The features that need the clock of the server; its finding is `clock`.
const BY_CLOCK: [&str; 3] = ["shared_locks", "semaphores", "once"];

pub(crate) async fn try_out(redis: &Redis, named: Option<&Key>) -> Vec<Finding> {
    // Another finding says why there is no session.
    let Ok(session) = redis.link.session().await else { return Vec::new() };
    if let Some(refusal) = not_granting(redis, &session).await {
        return vec![refusal];
    }
    if let Some(key) = named {
        let redis_key = redis.link.target.redis_key(key).into_owned();
        *lock(&redis.link.probe) = Some(redis_key);
    }
    let twin = Redis { link: Arc::clone(&redis.link), in_trial: true };
    let trial = Trial::new(&twin, getrandom::fill, named, &slot_tag(&redis.link.target));
    let Some(trial) = trial else { return vec![Trial::impossible()] };
    let key = trial.key();
    if named.is_some()
        && let Some(why) = why_used(redis, &session, key).await
    {
        return vec![Finding::not_tried(why, "name a key that no program uses: --key KEY")];
    }
    let clear = || -> BoxFuture<'_, bool> { Box::pin(clean(&twin, key, named.is_none())) };
    let mut tried = Tried::default();
    match expires(&twin, &session, key).await {
        Ok(()) => tried = trial.run(&clear).await,
        Err(cause) => tried.failures.push(("exclusive_locks", "renew", cause)),
    }
    if session.send(&time_in_a_script(redis)).await.is_err() {
        tried.failures.retain(|(feature, ..)| !BY_CLOCK.contains(feature));
    }
    let unpublished = publishes(redis, &session).await.err().map(|why| ("wake_ups", why));
    // For the report that follows.
    *lock(&redis.link.failed) = tried.reasons().chain(unpublished).collect();
    vec![verdict(&tried, key, named.is_some())]
}

/// Why a claim would not be granted, or would write a marker.
async fn not_granting(redis: &Redis, session: &Session) -> Option<Finding> {
    let (why, advice) = match redis.link.inspect_marker(session, redis.quarantine()?).await {
        Ok(MarkerState::Serving) => return None,
        Ok(MarkerState::Quarantined(_)) => ("the server is in quarantine", "run doctor again when it has ended"),
        Ok(_) => {
            ("doctor writes no marker of a quarantine", "run doctor again after the first lock, or fencelock init")
        }
        Err(_) => ("the quarantine of this server refuses every claim", "see quarantine"),
    };
    Some(Finding::not_tried(why, advice))
}

/// Why a trial of this key could harm another program.
async fn why_used(redis: &Redis, session: &Session, key: &Key) -> Option<String> {
    let redis_key = redis.link.target.redis_key(key);
    let mut exists = redis::cmd("EXISTS");
    exists.arg(&*redis_key);
    for side in script::SIDE.into_iter().chain([COMPLETION_KEY]) {
        exists.arg(side_key(&redis_key, side));
    }
    match session.send(&exists).await {
        Ok(Value::Int(0)) => None,
        Ok(_) => Some(format!("{key} is in use, or was less than 24 h ago")),
        Err(error) => Some(format!("whether {key} is in use is unknown: {}", words(&error))),
    }
}

/// Whether a message reaches the channels of waiters. Nobody subscribes to this channel.
async fn publishes(redis: &Redis, session: &Session) -> Result<(), String> {
    let channel = format!("{}doctor", wake_channels(&redis.link.target.prefix));
    let publish = async |command: &str| {
        let answer = session.send(redis::cmd(command).arg(&channel).arg("")).await;
        answer
            .map(drop)
            .map_err(|error| format!("no wake-ups ({command}: {}): waiters poll once per second", words(&error)))
    };
    if session.shards.is_some() && publish("SPUBLISH").await.is_ok() { Ok(()) } else { publish("PUBLISH").await }
}

fn verdict(tried: &Tried, key: &Key, is_named: bool) -> Finding {
    let causes = tried.failures.iter().flat_map(|(.., cause)| cause.nodes());
    if causes.clone().any(|node| node.fault == Fault::ReadOnly) {
        return Finding::not_tried("this server is a replica", "use the address of its master");
    }
    if !is_named && causes.clone().any(|node| node.fault == Fault::Denied && is_about_a_key(&node.detail)) {
        let why = format!("this user may not use the key {key}, or its side keys");
        let mut finding = Finding::not_tried(why, OTHER_KEY);
        finding.level = Level::Warning;
        return finding;
    }
    tried.finding(advice)
}

/// What to do about a server that refuses what a lock needs.
pub(crate) const fn advice(fault: Fault) -> &'static str {
    match fault {
        Fault::Denied => "check the user and the password, and its rights: docs/en/operations.md lists them",
        Fault::Full => "provide the server with memory, a writable disk, or its replicas",
        Fault::ReadOnly => "use the address of the master",
        Fault::Loading => "wait until the server has loaded its data",
        Fault::Busy => "see what the server does; in a cluster: redis-cli --cluster check HOST:PORT",
        Fault::Timeout | Fault::Unreachable => "check the address, the server, and the network to it",
        Fault::Unsupported => "give the commands of the server their own names, or use another server",
        _ => "check the URL and the server",
    }
}

/// Whether keys of a trial end, whatever else is refused.
async fn expires(redis: &Redis, session: &Session, key: &Key) -> Result<(), Unknown> {
    let unused = side_key(&redis.link.target.redis_key(key), script::ABSENT_KEY);
    let mut eval = redis::cmd("EVAL");
    eval.arg("return redis.call('PEXPIRE', KEYS[1], 1)").arg(1).arg(unused);
    let named = |error| Unknown::new(redis.link.node(), fault_of(&error), format!("{} (PEXPIRE)", words(&error)));
    session.send(&eval).await.map(drop).map_err(named)
}

/// Removes what the trial has left. Otherwise it expires.
async fn clean(redis: &Redis, key: &Key, is_own: bool) -> bool {
    let Ok(session) = redis.link.session().await else { return false };
    let call = script::trial_end(&redis.link.target.redis_key(key), is_own);
    matches!(session.send(&call.in_full()).await, Ok(Value::Int(1)))
}

// Which features of fencelock work on a server. They are tested, not derived from its name or version.

const LOCKS: &str = "exclusive_locks";

/// The script needs a key, because a proxy selects the server by key.
pub(crate) fn time_in_a_script(redis: &Redis) -> Cmd {
    let mut eval = redis::cmd("EVAL");
    eval.arg("return redis.call('TIME')").arg(1).arg(probe(redis));
    eval
}

/// Tests which features work on the server of this session, without writing; what a trial has found counts as well.
///
/// `scripts`: the result of [`scripts`].
pub(crate) async fn features(
    redis: &Redis,
    session: &Session,
    topology: Topology,
    scripts: Result<(), RedisError>,
) -> Vec<Feature> {
    let locks = match topology {
        Topology::Replica => Err("it is a replica, which refuses writes".to_owned()),
        _ => scripts.map_err(|error| needs("EVALSHA and EVAL", &error)),
    };
    let tested =
        async |command: &Cmd, name: &str| session.send(command).await.map(drop).map_err(|error| needs(name, &error));
    let time = tested(&time_in_a_script(redis), "TIME in scripts").await;
    let shared = locks.clone().and(time.clone());
    let limitation = |begins: &str| {
        let found = session.server_info.limitations.iter().find(|lack| lack.starts_with(begins));
        found.map_or(Ok(()), |lack| Err(lack.clone()))
    };
    let run_id = match session.server_info.run_id.as_str() {
        _ if topology == Topology::ClusterNode => Err("a cluster has none: failovers would stop its slots".to_owned()),
        "" => limitation("INFO").and(Err("INFO has no run id, which changes when the server restarts".to_owned())),
        _ => Ok(()),
    };
    let lists = lists_a_page(redis, session).await;
    let all = [
        (LOCKS, locks),
        ("shared_locks", shared.clone()),
        ("semaphores", shared),
        ("tokens_by_server_time", time.clone()),
        ("wake_ups", limitation("no wake-ups")),
        ("tracking", limitation("no client tracking")),
        // It returns immediately for any number of replicas.
        ("acks", tested(redis::cmd("WAIT").arg(0).arg(1), "WAIT").await),
        ("quarantine", run_id.and(time)),
        ("list", lists.map_err(|cause| format!("it needs SCAN, and its keys: {}", cause.causes()))),
    ];
    let tried = |(name, works): (_, Result<(), String>)| {
        Feature::new(name, works.and_then(|()| redis.link.failure(name).map_or(Ok(()), Err)))
    };
    all.into_iter().map(tried).collect()
}

/// Runs a script that every lock needs.
pub(crate) async fn scripts(redis: &Redis, session: &Session) -> Result<(), RedisError> {
    let call = script::inspect(&probe(redis), 1, EpochCheck::without_marker(""));
    redis.link.call(session, &call).await.map(drop)
}

/// The name of a lock that no client uses. A node of a cluster runs scripts only for the slots that it serves.
fn probe(redis: &Redis) -> String {
    if let Some(named) = lock(&redis.link.probe).clone() {
        return named;
    }
    let target = &redis.link.target;
    format!("{}fencelock-doctor{}", target.prefix, slot_tag(target))
}

/// The end of a name in a slot of this node; empty outside of a cluster.
pub(crate) fn slot_tag(target: &Target) -> String {
    let slot = target.cluster.as_ref().and_then(|view| view.slot_of(&target.tcp_address()?));
    slot.map(|slot| format!("{{{}}}", number_in_slot(slot))).unwrap_or_default()
}

fn needs(what: &str, error: &RedisError) -> String {
    format!("it needs {what}: {}", words(error))
}

/// One human-readable line.
pub(crate) fn finding(features: &[Feature]) -> Finding {
    let title = |feature: &&Feature| feature.name.replace('_', " ");
    let titles = |features: &[&Feature]| features.iter().map(title).collect::<Vec<_>>().join(", ");
    let (here, lacking): (Vec<_>, Vec<_>) = features.iter().partition(|feature| feature.works);
    if lacking.is_empty() {
        return Finding::fine("features", format!("all work: {}", titles(&here)));
    }
    let groups = lacking.chunk_by(|one, next| one.reason == next.reason);
    let groups: Vec<_> = groups.map(|group| format!("{} ({})", titles(group), group[0].reason)).collect();
    let here = if here.is_empty() { "nothing".to_owned() } else { titles(&here) };
    let text = format!("work: {here}. Do not work: {}", groups.join(", "));
    let level = match lacking.iter().find(|feature| feature.name == LOCKS) {
        // Another key may work.
        Some(feature) if is_about_a_key(&feature.reason) => Level::Warning,
        Some(_) => Level::Failure,
        None => Level::Note,
    };
    Finding::new(level, "features", text, "")
}

// Scans a server for values that this version cannot read.

/// The limits of the scan, so that `doctor` takes a few seconds for any database.
const PAGES: usize = 1000;
const MOST_LOCKS: usize = 10_000;
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

pub(crate) async fn wire(redis: &Redis, session: &Session) -> Finding {
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
            let answers = send_batch(session, calls, None).await.map_err(|error| redis.unknown(&error))?;
            for (redis_key, answer) in redis_keys.iter().zip(answers) {
                found.note(redis.link.node(), redis_key, answer.map_err(|error| redis.unknown(&error))?)?;
            }
        }
        found.seen.extend(new);
        found.more = next != 0;
        if !found.more || found.seen.len() >= MOST_LOCKS {
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

#[cfg(test)]
mod features_tests {
    use super::*;

    #[test]
    fn a_missing_feature_is_listed_once_with_its_reason() {
        let lack = |name| Feature::new(name, Err("it needs TIME in scripts: denied".to_owned()));
        let some = finding(&[Feature::new(LOCKS, Ok(())), lack("shared_locks"), lack("semaphores")]);
        assert_eq!(some.level, Level::Note);
        let expected =
            "work: exclusive locks. Do not work: shared locks, semaphores (it needs TIME in scripts: denied)";
        assert_eq!(some.text, expected);
        assert_eq!(finding(&[Feature::new(LOCKS, Ok(()))]).level, Level::Fine);
        assert_eq!(finding(&[lack(LOCKS)]).level, Level::Failure);
    }
}
