//! Whether the users of a server are separate.

use crate::connection::session::Session;
use crate::server::Redis;
use fencelock_core::{Finding, Level};

/// For a URL with a prefix or a user, which tells that others use the server too.
pub(crate) fn diagnose(redis: &Redis, session: &Session) -> Option<Finding> {
    let target = &redis.link.target;
    let is_shared =
        !target.prefix.is_empty() || target.client.get_connection_info().redis_settings().username().is_some();
    let version = session.server_info.version.as_str();
    (is_shared && lets_scripts_meet(version)).then(|| {
        Finding::new(
            Level::Warning,
            "tenants",
            format!(
                "Redis {version} does not separate its users: before 7.0, a script can change the scripts that other users run later, and \
                 so use their rights"
            ),
            "use Redis 7.0 or later if a user of this server must not be able to harm another",
        )
    })
}

/// Before 7.0, scripts can change the environment that all scripts of the server share.
fn lets_scripts_meet(version: &str) -> bool {
    version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major < 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_7_do_not_separate_users() {
        let table =
            [("5.0.14", true), ("6.2.14", true), ("7.0.0", false), ("7.2.4", false), ("10.0.1", false), ("", false)];
        for (version, expected) in table {
            assert_eq!(lets_scripts_meet(version), expected, "{version}");
        }
    }
}
