//! Passwords: their sources, and which processes receive them.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

const URL: &str = "FENCELOCK_URL";
const PASSWORD: &str = "FENCELOCK_PASSWORD";

/// Adds the password of the environment to every server of `url` that has none.
pub(crate) fn complete(url: String) -> String {
    match std::env::var(PASSWORD) {
        Ok(password) if !password.is_empty() => with_password(&url, &password),
        _ => url,
    }
}

/// The variables that are removed from the environment of a command.
pub(crate) fn withheld() -> Vec<&'static str> {
    let url = std::env::var_os(URL).is_some_and(|url| has_password(&url.to_string_lossy()));
    [PASSWORD].into_iter().chain(url.then_some(URL)).collect()
}

fn with_password(url: &str, password: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let servers = match base.split_once("://") {
        // A password file in the URL takes precedence.
        _ if query.is_some_and(|query| query.split(['?', '&']).any(|option| option.starts_with("password_file="))) => {
            None
        }
        Some((
            "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
            | "rediss+cluster",
            server,
        )) => Some(with(server, password)),
        Some(("redlock" | "redlock+tls", list)) => {
            Some(list.split(',').map(|server| with(server, password)).collect::<Vec<_>>().join(","))
        }
        _ => None,
    };
    let Some(servers) = servers else { return url.to_owned() };
    let scheme = base.split_once("://").map_or("", |(scheme, _)| scheme);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}://{servers}{query}")
}

fn with(server: &str, password: &str) -> String {
    match server.rsplit_once('@') {
        None => format!(":{}@{server}", utf8_percent_encode(password, NON_ALPHANUMERIC)),
        Some((user, _)) if user.contains(':') => server.to_owned(),
        Some((user, host)) => format!("{user}:{}@{host}", utf8_percent_encode(password, NON_ALPHANUMERIC)),
    }
}

/// A URL that cannot be parsed may have one.
fn has_password(url: &str) -> bool {
    if url.starts_with("file:") || url.starts_with("memory:") {
        return false;
    }
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.rsplit_once('@').is_some_and(|(users, _)| users.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_without_a_password_gets_it() {
        let table = [
            ("redis://h", "redis://:s%2F3%40t@h"),
            ("rediss://app@h:1/2?ca=/x", "rediss://app:s%2F3%40t@h:1/2?ca=/x"),
            ("redis://app:own@h", "redis://app:own@h"),
            ("redis://:a,b@h", "redis://:a,b@h"),
            ("redlock://a:1,u:p@b,u@c?max_ttl=5", "redlock://:s%2F3%40t@a:1,u:p@b,u:s%2F3%40t@c?max_ttl=5"),
            ("redlock+tls://a", "redlock+tls://:s%2F3%40t@a"),
            ("redis+unix:///run/s", "redis+unix://:s%2F3%40t@/run/s"),
            // The password of the master, not of the sentinels.
            ("redis+sentinel://u@a,b/m?acks=1", "redis+sentinel://u:s%2F3%40t@a,b/m?acks=1"),
            ("redis+cluster://a,b", "redis+cluster://:s%2F3%40t@a,b"),
            ("redis://h?x=1&password_file=/p", "redis://h?x=1&password_file=/p"),
            ("file:/tmp/x", "file:/tmp/x"),
            ("memory:", "memory:"),
        ];
        for (url, expected) in table {
            assert_eq!(with_password(url, "s/3@t"), expected);
        }
    }

    #[test]
    fn a_url_that_may_have_a_password_is_known() {
        for url in ["redis://:p@h", "redis://u:p@h/1", "redlock://a,u:p@b", "redis://:p?w@h", "u:p@h"] {
            assert!(has_password(url), "{url}");
        }
        for url in
            ["redis://h:1", "redis://u@h", "redlock://a:1,b:2", "file:/home/a@b", "redis://h?password_file=/p", ""]
        {
            assert!(!has_password(url), "{url}");
        }
    }
}
