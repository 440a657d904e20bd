//! The topology that a server reports.

use crate::connection::session::Session;
use fencelock_core::{Finding, Level, Topology};
use std::collections::HashMap;

type Info = HashMap<String, String>;

/// Derives the topology from `INFO`, which is empty if it was refused.
pub(crate) fn topology(session: &Session, info: &Info) -> Topology {
    if session.mastership.is_some() {
        return Topology::SentinelMaster;
    }
    reported(info, session.server_info.limitations.iter().any(|lack| lacks_info(lack)))
}

/// Every Redis server supports `INFO`; one that does not is a proxy. A missing permission does not show a proxy.
fn lacks_info(limitation: &str) -> bool {
    limitation.starts_with("INFO is refused") && limitation.to_lowercase().contains("unknown command")
}

fn reported(info: &Info, lacks_info: bool) -> Topology {
    let is = |name: &str, value: &str| info.get(name).is_some_and(|reported| reported == value);
    if is("redis_mode", "cluster") || is("server_mode", "cluster") {
        return Topology::ClusterNode;
    }
    if is("role", "slave") {
        return Topology::Replica;
    }
    // A server reports the id of its run. A proxy in front of several servers has none.
    match info.get("run_id") {
        Some(_) => Topology::Single,
        None if lacks_info || !info.is_empty() => Topology::Proxy,
        None => Topology::Unknown,
    }
}

/// Text for users.
pub(crate) fn words(topology: Topology) -> &'static str {
    match topology {
        Topology::Single => "a single server",
        Topology::Replica => "a replica",
        Topology::SentinelMaster => "the master of its sentinels",
        Topology::ClusterNode => "a node of a cluster",
        Topology::Proxy => "behind a proxy",
        _ => "of unknown topology",
    }
}

/// The guarantees that are missing or unknown in the topology of this server.
pub(crate) fn diagnose(topology: Topology, info: &Info) -> Vec<Finding> {
    let mut findings = Vec::new();
    if topology == Topology::Proxy {
        findings.push(Finding::new(
            Level::Note,
            "proxy",
            "a proxy answers for the servers. A proxy that sends the requests for one key to another server, for example because \
             one is ejected, lets two clients hold one lock",
            "disable the ejection of servers in the proxy, or connect to the server directly",
        ));
    }
    if accepts_writes_elsewhere(info) {
        findings.push(Finding::new(
            Level::Failure,
            "active-active",
            "another server accepts writes of the same keys: each of them grants locks, so two clients can hold one lock",
            "use a server that is the only one to accept writes",
        ));
    }
    findings
}

/// Active-Active databases of Redis Software and Redis Cloud, and active replicas of `KeyDB`.
fn accepts_writes_elsewhere(info: &Info) -> bool {
    let is_peer = |name: &str| info.keys().any(|key| key.starts_with(name));
    is_peer("crdt_") || info.get("role").is_some_and(|role| role == "active-replica")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::doctor::health::fields;

    #[test]
    fn the_topology_is_derived_from_info() {
        for (info, lacks_info, topology) in [
            ("redis_mode:standalone\r\nrun_id:12\r\nrole:master\r\n", false, Topology::Single),
            ("redis_mode:standalone\r\nrun_id:12\r\nrole:slave\r\n", false, Topology::Replica),
            ("redis_mode:cluster\r\nrun_id:12\r\nrole:slave\r\n", false, Topology::ClusterNode),
            ("server_mode:cluster\r\nrun_id:12\r\n", false, Topology::ClusterNode),
            ("redis_version:7.0.0\r\n", false, Topology::Proxy),
            ("", true, Topology::Proxy),
            ("", false, Topology::Unknown),
        ] {
            assert_eq!(reported(&fields(info), lacks_info), topology, "{info}");
        }
    }

    #[test]
    fn a_denied_command_does_not_make_a_proxy() {
        assert!(lacks_info("INFO is refused: unknown command 'INFO', with args beginning with: 'server'"));
        assert!(lacks_info("INFO is refused: \"ERR\": unknown command `INFO`"));
        assert!(!lacks_info("INFO is refused: \"NOPERM\": this user has no permissions to run the 'info' command"));
        assert!(!lacks_info("no client tracking (unknown command)"));
    }

    #[test]
    fn a_server_that_is_not_the_only_one_to_accept_writes_is_refused() {
        let level = |info: &str| diagnose(Topology::Single, &fields(info)).first().map(|finding| finding.level);
        assert_eq!(level("role:master\r\nrun_id:12\r\n"), None);
        assert_eq!(level("role:active-replica\r\n"), Some(Level::Failure));
        assert_eq!(level("role:master\r\ncrdt_config_version:1\r\n"), Some(Level::Failure));
    }
}
