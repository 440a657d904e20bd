//! What a server tells of itself.

use super::features::time_in_a_script;
use crate::connection::session::Session;
use crate::server::Redis;
use fencelock_core::{BootClock, Clock, ClockOffset, Topology};
use redis::Value;
use std::collections::HashMap;

/// Several samples, so that a pause of a scheduler or a network is not mistaken for a clock difference.
const CLOCK_SAMPLES: usize = 3;

/// The fields of `INFO` by name; none if it was refused.
pub(super) struct Info(HashMap<String, String>);

impl Info {
    pub(super) async fn of(session: &Session) -> Self {
        let info = session.send(redis::cmd("INFO").arg("everything")).await;
        Self::read(&info.and_then(|info| Ok(redis::from_redis_value::<String>(info)?)).unwrap_or_default())
    }

    pub(super) fn read(info: &str) -> Self {
        let fields = info.lines().filter_map(|line| line.trim().split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(super) fn is_refused(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// The program and its own version, if they are known, and both as users read them. Several programs use the protocol of Redis, and
    /// report a compatible version of it. `claimed` is the version without `INFO`.
    pub(super) fn product(&self, claimed: &str) -> (Option<&'static str>, Option<String>, String) {
        for name in ["Valkey", "Dragonfly", "KeyDB"] {
            let lower = name.to_lowercase();
            if let Some(version) = self.get(&format!("{lower}_version")) {
                let version = version.trim_start_matches(|c: char| !c.is_ascii_digit());
                return (Some(name), Some(version.to_owned()), format!("{name} {version}"));
            }
            if self.is("server_name", &lower) {
                return (Some(name), None, format!("{name}, like Redis {claimed}"));
            }
        }
        match self.get("redis_version").unwrap_or(claimed) {
            "" => (None, None, "Redis of unknown version".to_owned()),
            version => (Some("Redis"), Some(version.to_owned()), format!("Redis {version}")),
        }
    }

    pub(super) fn topology(&self, session: &Session) -> Topology {
        if session.mastership.is_some() {
            return Topology::SentinelMaster;
        }
        self.reported(session.server_info.limitations.iter().any(|lack| lacks_info(lack)))
    }

    fn reported(&self, lacks_info: bool) -> Topology {
        if self.is("redis_mode", "cluster") || self.is("server_mode", "cluster") {
            return Topology::ClusterNode;
        }
        if self.is("role", "slave") {
            return Topology::Replica;
        }
        // A server reports the id of its run. A proxy in front of several servers has none.
        match self.get("run_id") {
            Some(_) => Topology::Single,
            None if lacks_info || !self.is_refused() => Topology::Proxy,
            None => Topology::Unknown,
        }
    }

    /// Active-Active databases of Redis Software and Redis Cloud, and active replicas of `KeyDB`.
    pub(super) fn has_peers(&self) -> bool {
        self.0.keys().any(|key| key.starts_with("crdt_")) || self.is("role", "active-replica")
    }
}

/// Every Redis server supports `INFO`; one that does not is a proxy. A missing permission does not show a proxy.
fn lacks_info(limitation: &str) -> bool {
    limitation.starts_with("INFO is refused") && limitation.to_lowercase().contains("unknown command")
}

/// The best of several samples; `None` if the server does not report its time.
pub(super) async fn clock(redis: &Redis, session: &Session) -> Option<ClockOffset> {
    let mut best: Option<ClockOffset> = None;
    for _ in 0..CLOCK_SAMPLES {
        let before = BootClock.wall_micros();
        let answer = match session.send(&redis::cmd("TIME")).await {
            // A proxy selects the server by key, so the command needs one.
            Err(_) => session.send(&time_in_a_script(redis)).await.ok()?,
            Ok(answer) => answer,
        };
        let sample = ClockOffset::measured(before, micros(&answer)?, BootClock.wall_micros());
        best = best.into_iter().chain([sample]).min_by_key(|sample| sample.within);
    }
    best
}

fn micros(value: &Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value_ref(value).ok()?;
    Some(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_accepted() {
        let time = |words: [&str; 2]| micros(&Value::Array(words.map(|it| Value::BulkString(it.into())).to_vec()));
        assert_eq!(time(["2", "3"]), Some(2_000_003));
        assert_eq!(time(["18446744073709551615", "18446744073709551615"]), Some(u64::MAX));
        assert_eq!(time(["-1", "0"]), None);
    }

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
            assert_eq!(Info::read(info).reported(lacks_info), topology, "{info}");
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
    fn a_server_that_is_not_the_only_one_to_accept_writes_is_recognized() {
        for (info, expected) in [
            ("role:master\r\nrun_id:12\r\n", false),
            ("role:active-replica\r\n", true),
            ("role:master\r\ncrdt_config_version:1\r\n", true),
        ] {
            assert_eq!(Info::read(info).has_peers(), expected, "{info}");
        }
    }

    #[test]
    fn a_server_has_its_own_name_and_version() {
        for (info, name) in [
            ("redis_version:8.2.3\r\nredis_mode:standalone\r\n", "Redis 8.2.3"),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n", "Valkey 9.1.2"),
            ("redis_version:7.4.0\r\ndragonfly_version:df-v1.27.1\r\n", "Dragonfly 1.27.1"),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\n", "Valkey, like Redis 7.2.4"),
        ] {
            assert_eq!(Info::read(info).product("7.2.4").2, name);
        }
        let without_info = |claimed| Info::read("").product(claimed);
        assert_eq!(without_info("7.0.15").2, "Redis 7.0.15");
        assert_eq!(without_info("").2, "Redis of unknown version");
        assert_eq!(without_info("").0, None);
    }
}
