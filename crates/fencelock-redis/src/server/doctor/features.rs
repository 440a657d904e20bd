//! Which features of fencelock work on a server. They are tested, not derived from its name or version.

use crate::connection::fault::{is_about_a_key, words};
use crate::connection::session::Session;
use crate::scripts::quarantine::EpochCheck;
use crate::scripts::script;
use crate::server::Redis;
use crate::server::list::lists_a_page;
use crate::url::target::Target;
use fencelock_core::{Feature, Finding, Level, Topology, number_in_slot};
use redis::{Cmd, RedisError};
use std::sync::PoisonError;

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
    if let Some(named) = redis.link.probe.lock().unwrap_or_else(PoisonError::into_inner).clone() {
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

#[cfg(test)]
mod tests {
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
