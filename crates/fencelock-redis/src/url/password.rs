//! Passwords in URLs, and the files that options name.

use fencelock_core::Invalid;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::fs::File;
use std::io::{self, Read};

/// The URL with this password, unless it has one. The addresses after the first belong to the same login.
pub(crate) fn for_all(url: &str, password: &str) -> String {
    complete(url, |servers| with(servers, password))
}

/// The URL with this password for each server of its list that has none.
pub(crate) fn for_each(url: &str, password: &str) -> String {
    complete(url, |list| list.split(',').map(|server| with(server, password)).collect::<Vec<_>>().join(","))
}

fn complete(url: &str, login: impl Fn(&str) -> String) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let mut options = query.unwrap_or_default().split(['?', '&']);
    // A password file in the URL takes precedence.
    let has_file = options.any(|option| option.starts_with("password_file="));
    match base.split_once("://") {
        Some((scheme, servers)) if !has_file => {
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            format!("{scheme}://{}{query}", login(servers))
        }
        _ => url.to_owned(),
    }
}

fn with(server: &str, password: &str) -> String {
    match server.rsplit_once('@') {
        None => format!(":{}@{server}", utf8_percent_encode(password, NON_ALPHANUMERIC)),
        Some((user, _)) if user.contains(':') => server.to_owned(),
        Some((user, host)) => format!("{user}:{}@{host}", utf8_percent_encode(password, NON_ALPHANUMERIC)),
    }
}

/// The options of a URL that name files.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileOptions {
    pub(crate) ca: Option<String>,
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
    /// The option and its file.
    pub(crate) password: Option<(&'static str, String)>,
}

/// Only regular files are read, because a pipe may block and a device may have no end.
pub(crate) fn read(option: &str, file: &str, most: u64) -> Result<Vec<u8>, Invalid> {
    let refused = |error: io::Error| Invalid::new(format!("{option}={file} cannot be read: {error}"));
    if !std::fs::metadata(file).map_err(refused)?.is_file() {
        return Err(Invalid::new(format!("{option}={file} is not a regular file")));
    }
    let mut bytes = Vec::new();
    File::open(file).and_then(|opened| opened.take(most + 1).read_to_end(&mut bytes)).map_err(refused)?;
    if bytes.len() as u64 > most {
        return Err(Invalid::new(format!("{option}={file} is longer than {most} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use crate::{ClusterScheme, QuorumScheme, RedisScheme};
    use fencelock_core::Scheme;

    #[test]
    fn every_server_without_a_password_gets_it() {
        let redis = [
            ("redis://h", "redis://:s%2F3%40t@h"),
            ("rediss://app@h:1/2?ca=/x", "rediss://app:s%2F3%40t@h:1/2?ca=/x"),
            ("redis://app:own@h", "redis://app:own@h"),
            ("redis://:a,b@h", "redis://:a,b@h"),
            ("redis+unix:///run/s", "redis+unix://:s%2F3%40t@/run/s"),
            // The password of the master, not of the sentinels.
            ("redis+sentinel://u@a,b/m?acks=1", "redis+sentinel://u:s%2F3%40t@a,b/m?acks=1"),
            ("redis://h?x=1&password_file=/p", "redis://h?x=1&password_file=/p"),
            ("redis:h", "redis:h"),
        ];
        let cluster = [("redis+cluster://a,b", "redis+cluster://:s%2F3%40t@a,b")];
        let quorum = [
            ("redlock://a:1,u:p@b,u@c?max_ttl=5", "redlock://:s%2F3%40t@a:1,u:p@b,u:s%2F3%40t@c?max_ttl=5"),
            ("redlock+tls://a", "redlock+tls://:s%2F3%40t@a"),
        ];
        let with_password = |scheme: &dyn Scheme, table: &[(&str, &str)]| {
            for (url, expected) in table {
                assert_eq!(scheme.with_password(url, "s/3@t").as_deref(), Ok(*expected));
            }
        };
        with_password(&RedisScheme, &redis);
        with_password(&ClusterScheme, &cluster);
        with_password(&QuorumScheme, &quorum);
    }

    #[test]
    fn every_form_of_url_takes_a_password() {
        let schemes: [&dyn Scheme; 3] = [&RedisScheme, &ClusterScheme, &QuorumScheme];
        for form in schemes.iter().flat_map(|scheme| scheme.forms().iter().map(move |form| (scheme, form))) {
            let (scheme, form) = form;
            assert!(scheme.with_password(form.url, "s3cret").unwrap().contains(":s3cret@"), "{form:?}");
        }
    }
}
