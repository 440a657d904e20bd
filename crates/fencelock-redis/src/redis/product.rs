//! The program of a server: several use the protocol of Redis, and report a compatible Redis version.

use std::collections::HashMap;

/// `Valkey 9.1.2`, `Redis 8.2.3`. Other products report their own version in addition to `redis_version`.
pub(super) fn product(info: &HashMap<String, String>, claimed: &str) -> String {
    for name in ["Valkey", "Dragonfly", "KeyDB"] {
        let lower = name.to_lowercase();
        let version = info.get(&format!("{lower}_version"));
        if let Some(version) = version {
            return format!("{name} {}", version.trim_start_matches(|c: char| !c.is_ascii_digit()));
        }
        if info.get("server_name").is_some_and(|server| *server == lower) {
            return format!("{name}, like Redis {claimed}");
        }
    }
    match info.get("redis_version").map_or(claimed, String::as_str) {
        "" => "Redis of unknown version".to_owned(),
        version => format!("Redis {version}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::health::fields;
    use super::*;

    #[test]
    fn a_server_has_its_own_name_and_version() {
        for (info, name) in [
            ("redis_version:8.2.3\r\nredis_mode:standalone\r\n", "Redis 8.2.3"),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n", "Valkey 9.1.2"),
            ("redis_version:7.4.0\r\ndragonfly_version:df-v1.27.1\r\n", "Dragonfly 1.27.1"),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\n", "Valkey, like Redis 7.2.4"),
        ] {
            assert_eq!(product(&fields(info), "7.2.4"), name);
        }
        assert_eq!(product(&HashMap::new(), "7.0.15"), "Redis 7.0.15", "INFO is refused");
        assert_eq!(product(&HashMap::new(), ""), "Redis of unknown version");
    }
}
