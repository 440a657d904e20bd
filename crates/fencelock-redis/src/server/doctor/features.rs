//! Which features of fencelock work on a server. They are tested, not derived from its name or version.

use crate::connection::fault::{is_about_a_key, words};
use crate::connection::session::Session;
use crate::scripts::quarantine::EpochCheck;
use crate::scripts::script;
use crate::server::Redis;
use crate::server::list::lists_a_page;
use crate::url::target::Target;
use fencelock_core::{Feature, Finding, Level, Topology, Unknown, number_in_slot};
use redis::{Cmd, RedisError};
use std::sync::PoisonError;

const LOCKS: &str = "exclusive_locks";

/// Returns immediately for any number of replicas.
fn no_wait() -> Cmd {
    let mut wait = redis::cmd("WAIT");
    wait.arg(0).arg(1);
    wait
}

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
    let scripts = scripts.map_err(|error| needs("EVALSHA and EVAL", &error));
    let locks = match topology {
        Topology::Replica => Err("it is a replica, which refuses writes".to_owned()),
        _ => scripts,
    };
    let time = session.send(&time_in_a_script(redis)).await.map(drop).map_err(|error| needs("TIME in scripts", &error));
    let shared = locks.clone().and_then(|()| time.clone());
    let limitation = |begins: &str| {
        let found = session.server_info.limitations.iter().find(|lack| lack.starts_with(begins));
        found.map_or(Ok(()), |lack| Err(lack.clone()))
    };
    let tested =
        async |command: Cmd, name: &str| session.send(&command).await.map(drop).map_err(|error| needs(name, &error));
    let run_id = match session.server_info.run_id.as_str() {
        _ if topology == Topology::ClusterNode => {
            Err("a cluster has none: each failover would stop its slots".to_owned())
        }
        "" => limitation("INFO")
            .and(Err("INFO does not contain a run id, which changes when the server restarts".to_owned())),
        _ => Ok(()),
    };
    let all = vec![
        Feature::new(LOCKS, locks),
        Feature::new("shared_locks", shared.clone()),
        Feature::new("semaphores", shared),
        Feature::new("tokens_by_server_time", time.clone()),
        Feature::new("wake_ups", limitation("no wake-ups")),
        Feature::new("tracking", limitation("no client tracking")),
        Feature::new("acks", tested(no_wait(), "WAIT").await),
        Feature::new("quarantine", run_id.and(time)),
        Feature::new("list", lists_a_page(redis, session).await.map_err(|cause| needs_to_list(&cause))),
    ];
    let tried = |feature: Feature| match redis.link.failure(feature.name).filter(|_| feature.works) {
        Some(reason) => Feature::new(feature.name, Err(reason)),
        None => feature,
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

fn needs_to_list(cause: &Unknown) -> String {
    let detail = cause.nodes().first().map_or("", |node| node.detail.as_str());
    format!("it needs SCAN, and the keys that it finds: {detail}")
}

/// Features that have a separate finding, which contains the reason.
const EXPLAINED: [&str; 2] = ["wake_ups", "tracking"];

/// One human-readable line.
pub(crate) fn finding(features: &[Feature]) -> Finding {
    let title = |feature: &Feature| feature.name.replace('_', " ");
    let here: Vec<_> = features.iter().filter(|feature| feature.works).map(title).collect();
    let lacking: Vec<_> = features.iter().filter(|feature| !feature.works).collect();
    let here = if here.is_empty() { "nothing".to_owned() } else { here.join(", ") };
    if lacking.is_empty() {
        return Finding::fine("features", format!("all work: {here}"));
    }
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for feature in &lacking {
        let reason = if EXPLAINED.contains(&feature.name) { "" } else { feature.reason.as_str() };
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(title(feature)),
            None => groups.push((reason, vec![title(feature)])),
        }
    }
    let shown = groups.iter().map(|(reason, names)| match *reason {
        "" => names.join(", "),
        reason => format!("{} ({reason})", names.join(", ")),
    });
    let text = format!("work: {here}. Do not work: {}", shown.collect::<Vec<_>>().join(", "));
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
