//! The options of a URL.

use super::password::FileOptions;
use super::secrets::SecretFiles;
use crate::scripts::quarantine::{LONGEST_TTL, Quarantine};
use fencelock_core::{Invalid, Key, Ttl};
use percent_encoding::percent_decode_str;
use redis::{ConnectionInfo, RedisConnectionInfo};
use std::borrow::Cow;
use std::time::Duration;

/// A second is a thousand round trips in a data centre and five around the world.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
/// More replicas than any deployment has; a larger number is a typing error.
const REPLICAS_MAX: u32 = 100;

/// Whether a server is standalone, or one of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Alone,
    /// A node of a quorum. It always has a quarantine.
    Member,
    /// A node of a Redis Cluster. It never has a quarantine.
    ClusterNode,
}

/// Those that a URL names.
#[derive(Debug, Default)]
pub(crate) struct Options {
    prefix: Option<String>,
    compat: Option<String>,
    pub(crate) limit: Option<Duration>,
    pub(crate) resp3: Option<bool>,
    pub(crate) push: Option<bool>,
    pub(crate) acks: u32,
    pub(crate) acks_limit: Option<Duration>,
    pub(crate) files: FileOptions,
    quarantine: Option<bool>,
    max_ttl: Option<Ttl>,
    trust_empty: Option<bool>,
    pub(crate) db: Option<i64>,
    sentinel_user: Option<String>,
    sentinel_password_file: Option<String>,
}

impl Options {
    pub(crate) fn read(&mut self, pair: &str) -> Result<(), Invalid> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decoded(value)?;
        match (name, value.as_str()) {
            ("prefix", _) => self.prefix = Some(checked(name, value)?),
            ("compat", preset) => self.compat = Some(prefix_of(preset)?),
            ("timeout", text) => self.limit = Some(millis(name, text)?),
            ("acks", text) => {
                self.acks = text.parse().ok().filter(|acks| *acks <= REPLICAS_MAX).ok_or_else(|| {
                    Invalid::new(format!("acks= takes a number of replicas from 0 to {REPLICAS_MAX}, not {text:?}"))
                })?;
            }
            ("acks_timeout", text) => self.acks_limit = Some(millis(name, text)?),
            ("protocol", "resp2" | "resp3") => self.resp3 = Some(value == "resp3"),
            ("push", "on" | "off") => self.push = Some(value == "on"),
            ("ca", file) => self.files.ca = Some(file.to_owned()),
            ("cert", file) => self.files.cert = Some(file.to_owned()),
            ("key", file) => self.files.key = Some(file.to_owned()),
            ("password_file", file) => self.files.password = Some(("password_file", file.to_owned())),
            ("quarantine", "on" | "off") => self.quarantine = Some(value == "on"),
            ("max_ttl", text) => {
                let ttl = text.parse().ok().and_then(|ms| Ttl::new(Duration::from_millis(ms)).ok());
                self.max_ttl = Some(ttl.ok_or_else(|| {
                    Invalid::new(format!("max_ttl= takes milliseconds from 10 to 86400000, not {text:?}"))
                })?);
            }
            ("trust_empty", "true" | "false") => self.trust_empty = Some(value == "true"),
            ("db", text) => {
                let invalid = || Invalid::new(format!("db= takes the number of a database, not {text:?}"));
                self.db = Some(text.parse().ok().filter(|db| *db >= 0).ok_or_else(invalid)?);
            }
            ("sentinel_user", _) => self.sentinel_user = Some(value),
            ("sentinel_password_file", file) => self.sentinel_password_file = Some(file.to_owned()),
            _ => {
                // The value of an unknown option may be a password.
                let is_known = matches!(name, "protocol" | "push" | "quarantine" | "trust_empty");
                let shown = if is_known { pair } else { name };
                return Err(Invalid::new(format!(
                    "{shown:?} is not an option of a redis:// URL; supported: prefix=P, compat=LIBRARY, timeout=MS, protocol=resp2|resp3, \
                     push=on|off, acks=N, acks_timeout=MS, ca=FILE, cert=FILE, key=FILE, password_file=FILE, quarantine=on|off, max_ttl=MS and trust_empty=true|false; for redis+unix:// also \
                     db=N, and for redis+sentinel:// sentinel_user=NAME and sentinel_password_file=FILE"
                )));
            }
        }
        Ok(())
    }

    /// Rejects options that would have no effect.
    pub(crate) fn check(&self, info: &ConnectionInfo, has_sentinels: bool) -> Result<(), Invalid> {
        let (has_user, has_file) = (self.sentinel_user.is_some(), self.sentinel_password_file.is_some());
        let is_twice = self.files.password.is_some() && info.redis_settings().password().is_some();
        let refused = [
            (is_twice, "the password is in the URL, and password_file= is set too: use one of them"),
            (
                (has_user || has_file) && !has_sentinels,
                "sentinel_user= and sentinel_password_file= are for redis+sentinel:// URLs",
            ),
            (has_user && !has_file, "sentinel_user= needs sentinel_password_file="),
            (
                self.prefix.is_some() && self.compat.is_some(),
                "compat= and prefix= both set the prefix: use one of them",
            ),
        ];
        refused.into_iter().find(|(is_refused, _)| *is_refused).map_or(Ok(()), |(_, why)| Err(Invalid::new(why)))
    }

    /// The login at the sentinels, whose users are not those of the master, and the files for it.
    pub(crate) fn sentinel_login(&self) -> Result<(RedisConnectionInfo, SecretFiles), Invalid> {
        let mut login = RedisConnectionInfo::default();
        if let Some(user) = &self.sentinel_user {
            login = login.set_username(user);
        }
        let password = self.sentinel_password_file.clone().map(|file| ("sentinel_password_file", file));
        Ok((login, SecretFiles::new(FileOptions { password, ..self.files.clone() })?))
    }

    /// The prefix of either option.
    pub(crate) fn prefix(&self) -> String {
        self.prefix.as_ref().or(self.compat.as_ref()).cloned().unwrap_or_default()
    }

    pub(crate) fn quarantine(&self, role: Role, prefix: &str) -> Result<Option<Quarantine>, Invalid> {
        let (is_on, has_options) =
            (self.quarantine == Some(true), self.max_ttl.is_some() || self.trust_empty.is_some());
        let refused = match role {
            Role::ClusterNode if is_on || has_options => {
                "redis+cluster:// has no quarantine: its marker is one key, and scripts of a cluster can only read keys in the slot of \
                 the lock; without one, a failover may lose the last locks, so let the protected resource check fencing tokens, or \
                 use redlock:// or redis+sentinel:// with quarantine=on"
            }
            Role::Member if self.quarantine == Some(false) => {
                "redlock:// always has a quarantine: without it, two clients could hold one lock after a restart. \
                 trust_empty=true trusts each server at once, at your risk"
            }
            Role::Alone if !is_on && has_options => "max_ttl= and trust_empty= require quarantine=on",
            _ => "",
        };
        if !refused.is_empty() {
            return Err(Invalid::new(refused));
        }
        if role != Role::Member && !is_on {
            return Ok(None);
        }
        let max_ttl = self.max_ttl.map_or_else(|| Ttl::new(LONGEST_TTL), Ok)?;
        Ok(Some(Quarantine::alone(prefix, max_ttl, self.trust_empty == Some(true))))
    }
}

pub(crate) fn millis(name: &str, text: &str) -> Result<Duration, Invalid> {
    let millis = text.parse::<u64>().ok().filter(|ms| (1..=60_000).contains(ms));
    let invalid = || Invalid::new(format!("{name}= takes milliseconds from 1 to 60000, not {text:?}"));
    millis.map(Duration::from_millis).ok_or_else(invalid)
}

pub(crate) fn percent_decoded(text: &str) -> Result<String, Invalid> {
    // The crate leaves invalid escapes unchanged.
    let is_escape = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    let decoded = percent_decode_str(text).decode_utf8().ok().filter(|_| text.split('%').skip(1).all(is_escape));
    // The text may be a password.
    let invalid = || Invalid::new("a part of this URL is not percent-encoded UTF-8: write % as %25");
    decoded.map(Cow::into_owned).ok_or_else(invalid)
}

const PREFIX_MAX: usize = 128;

/// The prefix that a compatible library adds to each key. `docs/en/sharing-keys.md` describes what is safe with each.
///
/// Each of these libraries stores a lock as a string, and its name differs only by a prefix, so a preset is a prefix.
pub(crate) fn prefix_of(preset: &str) -> Result<String, Invalid> {
    let prefix = match preset.split_once(':') {
        None => match preset {
            "redlock.net" | "pottery" => "redlock:",
            "redis-semaphore" => "mutex:",
            "php-lock" => "php-malkusch-lock:",
            "shedlock" => "job-lock:default:",
            _ => return Err(unknown(preset)),
        }
        .to_owned(),
        // The prefix of Laravel depends on the application: the prefix of the connection, then that of the cache.
        Some(("laravel", prefix)) if !prefix.is_empty() => prefix.to_owned(),
        Some(("shedlock", environment)) if !environment.is_empty() => format!("job-lock:{environment}:"),
        Some(_) => return Err(unknown(preset)),
    };
    checked("compat", prefix)
}

/// A prefix that results in a valid name.
pub(crate) fn checked(option: &str, prefix: String) -> Result<String, Invalid> {
    // With "fence", the key "lock:{a}:fence" would be the side key of the lock "a".
    let reserved = prefix.starts_with(Key::RESERVED) || !prefix.is_empty() && Key::RESERVED.starts_with(&prefix);
    if prefix.len() > PREFIX_MAX || prefix.chars().any(char::is_control) || reserved {
        return Err(Invalid::new(format!(
            "{option}= takes a prefix of at most {PREFIX_MAX} bytes without control characters, and not the prefix of fencelock"
        )));
    }
    Ok(prefix)
}

fn unknown(preset: &str) -> Invalid {
    Invalid::new(format!(
        "compat={preset} is not a preset; the presets are redlock.net, pottery, redis-semaphore, php-lock, laravel:PREFIX and shedlock:ENV"
    ))
}

#[cfg(test)]
mod compat_tests {
    use super::*;
    use crate::scripts::side_key::side_key;
    use crate::url::target::Target;

    fn redis_key(query: &str, key: &str) -> String {
        Target::parse(&format!("redis://h?{query}")).unwrap().redis_key(&Key::new(key).unwrap()).into_owned()
    }

    #[test]
    fn each_preset_names_a_key_as_its_library_does() {
        for (preset, name) in [
            ("redlock.net", "redlock:orders"),
            ("pottery", "redlock:orders"),
            ("redis-semaphore", "mutex:orders"),
            ("php-lock", "php-malkusch-lock:orders"),
            ("laravel:shop_database_shop_cache_", "shop_database_shop_cache_orders"),
            ("laravel:shop_database_shop_cache%3A", "shop_database_shop_cache:orders"),
            ("shedlock", "job-lock:default:orders"),
            ("shedlock:production", "job-lock:production:orders"),
        ] {
            assert_eq!(redis_key(&format!("compat={preset}"), "orders"), name, "{preset}");
        }
    }

    #[test]
    fn side_keys_are_in_the_slot_of_their_lock() {
        for (query, key, fence) in [
            ("compat=redis-semaphore", "orders", "fencelock:{mutex:orders}:fence"),
            ("compat=pottery", "{user:1}:cart", "fencelock:key:redlock:{user:1}:cart:fence"),
            ("compat=laravel:{shop}:", "orders", "fencelock:key:{shop}:orders:fence"),
            ("compat=laravel:{shop}:", "{user:1}", "fencelock:key:{shop}:{user:1}:fence"),
        ] {
            assert_eq!(side_key(&redis_key(query, key), "fence"), fence, "{query} {key}");
        }
    }

    #[test]
    fn an_unknown_preset_is_rejected_with_a_list_of_presets() {
        for preset in ["", "redlock", "laravel", "laravel:", "shedlock:", "pottery:x"] {
            let error = Target::parse(&format!("redis://h?compat={preset}")).unwrap_err().to_string();
            assert!(error.contains(&format!("compat={preset}")) && error.contains("php-lock"), "{error}");
        }
    }

    #[test]
    fn a_preset_and_a_prefix_cannot_be_combined() {
        for query in ["compat=pottery&prefix=x", "prefix=x&compat=pottery"] {
            let error = Target::parse(&format!("redis://h?{query}")).unwrap_err().to_string();
            assert!(error.contains("compat=") && error.contains("prefix="), "{error}");
        }
    }

    #[test]
    fn a_reserved_prefix_is_rejected() {
        for query in [
            "compat=laravel:fencelock:{a}:",
            "prefix=fencelock:{",
            "prefix=fencelock:",
            "prefix=fence",
            "prefix=f",
            "compat=shedlock:%0A",
        ] {
            assert!(Target::parse(&format!("redis://h?{query}")).is_err(), "{query}");
        }
        assert_eq!(redis_key("prefix=fencelock-", "k"), "fencelock-k");
    }
}
