//! The program of a server: several use the protocol of Redis, and report a compatible Redis version.

use std::collections::HashMap;
use std::fmt;

/// A program and its own version, if they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) name: Option<&'static str>,
    pub(crate) version: Option<String>,
    /// The version of Redis that it claims to be like, if it does not report its own.
    like: Option<String>,
}

impl Product {
    /// Other products report their own version in addition to `redis_version`. `claimed` is the version without `INFO`.
    pub(crate) fn of(info: &HashMap<String, String>, claimed: &str) -> Self {
        for name in ["Valkey", "Dragonfly", "KeyDB"] {
            let lower = name.to_lowercase();
            if let Some(version) = info.get(&format!("{lower}_version")) {
                let version = version.trim_start_matches(|c: char| !c.is_ascii_digit());
                return Self { name: Some(name), version: Some(version.to_owned()), like: None };
            }
            if info.get("server_name").is_some_and(|server| *server == lower) {
                return Self { name: Some(name), version: None, like: Some(claimed.to_owned()) };
            }
        }
        let version = info.get("redis_version").map_or(claimed, String::as_str);
        let version = Some(version.to_owned()).filter(|version| !version.is_empty());
        Self { name: version.as_ref().map(|_| "Redis"), version, like: None }
    }
}

/// `Valkey 9.1.2`, `Redis 8.2.3`.
impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name, &self.version, &self.like) {
            (Some(name), Some(version), _) => write!(f, "{name} {version}"),
            (Some(name), None, Some(like)) => write!(f, "{name}, like Redis {like}"),
            _ => f.write_str("Redis of unknown version"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::doctor::health::fields;

    #[test]
    fn a_server_has_its_own_name_and_version() {
        for (info, name) in [
            ("redis_version:8.2.3\r\nredis_mode:standalone\r\n", "Redis 8.2.3"),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n", "Valkey 9.1.2"),
            ("redis_version:7.4.0\r\ndragonfly_version:df-v1.27.1\r\n", "Dragonfly 1.27.1"),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\n", "Valkey, like Redis 7.2.4"),
        ] {
            assert_eq!(Product::of(&fields(info), "7.2.4").to_string(), name);
        }
        let without_info = |claimed| Product::of(&HashMap::new(), claimed);
        assert_eq!(without_info("7.0.15").to_string(), "Redis 7.0.15");
        assert_eq!(without_info("").to_string(), "Redis of unknown version");
        assert_eq!(without_info("").name, None);
    }
}
