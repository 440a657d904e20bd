use super::acks::Acks;
use super::compat;
use super::quarantine::{LONGEST_TTL, Quarantine};
use super::secrets;
use fencelock_core::{Invalid, Key, Ttl};
use percent_encoding::percent_decode_str;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult, TlsCertificates};
use rustls::crypto::CryptoProvider;
use std::borrow::Cow;
use std::time::Duration;

/// The content of a `redis://` URL.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Host, port and database, without credentials.
    pub(crate) name: String,
    pub(crate) client: redis::Client,
    certificates: Option<TlsCertificates>,
    /// The prefix of every key on the server.
    pub(crate) prefix: String,
    /// The timeout of a connection attempt, and of a reply.
    pub(crate) limit: Duration,
    /// Whether to request RESP3, which has wake-ups on the same connection and reports foreign changes.
    pub(crate) resp3: bool,
    /// Whether to use wake-ups.
    pub(crate) push: bool,
    /// The number of replicas that must confirm writes, if any.
    pub(crate) acks: Option<Acks>,
    /// The required quarantine, if any.
    pub(crate) quarantine: Option<Quarantine>,
}

/// Whether a server is standalone, or one of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Alone,
    /// Always has a quarantine.
    Member,
}

/// A second is a thousand round trips in a data centre and five around the world.
const LIMIT: Duration = Duration::from_secs(1);
/// More replicas than any deployment has, to detect typing errors.
const REPLICAS_MAX: u32 = 100;

impl Target {
    /// Parses `redis://[user:password@]host[:port][/db][?option=value&...]`, or `rediss://` for TLS.
    ///
    /// | option | meaning |
    /// |---|---|
    /// | `prefix=P` | a prefix of every key, to share locks with programs that use one |
    /// | `compat=LIBRARY` | the prefix that this library uses: `redlock.net`, `pottery`, `redis-semaphore`, `php-lock`, `laravel:PREFIX`, `shedlock:ENV` |
    /// | `timeout=MS` | the timeout of a connection attempt or a reply; 1000 ms by default |
    /// | `protocol=resp2` | do not use RESP3 |
    /// | `push=off` | no wake-ups: waiters only poll |
    /// | `acks=N` | a grant or a renewal counts when N replicas have confirmed it; off by default |
    /// | `acks_timeout=MS` | the timeout of the replicas; the same as `timeout=` by default |
    /// | `ca=FILE` | with `rediss://`: trust the certificates in this PEM file instead of the system's |
    /// | `cert=FILE`, `key=FILE` | with `rediss://`: the certificate of this client, and its private key, both PEM |
    /// | `password_file=FILE` | the password is the first line of this file |
    /// | `quarantine=on` | a server that may have lost its locks grants nothing |
    /// | `max_ttl=MS` | with a quarantine: the longest TTL, and so its length; 60000 ms by default |
    /// | `trust_empty=true` | with a quarantine: an unknown server has lost nothing |
    pub(crate) fn parse(url: &str) -> Result<Self, Invalid> {
        Self::parse_as(Role::Alone, url)
    }

    pub(crate) fn parse_as(role: Role, url: &str) -> Result<Self, Invalid> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let info = base.into_connection_info().map_err(|error| {
            // The message does not contain the URL, which may include a password.
            reason(base).unwrap_or_else(|| unusable(&error))
        })?;
        let info = with_settings(info);
        let name = name_of(&info);
        let mut options = Options::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            // After a '?' in a password, the rest looks like an option.
            let hidden =
                |_| Invalid::new("an option of this URL cannot be read; in a password ? is written %3F, and @ %40");
            let read = options.read(pair);
            if query.contains('@') { read.map_err(hidden)? } else { read? }
        }
        let info = options.with_password(info)?;
        let prefix = options.prefix()?;
        let quarantine = options.quarantine(role, &prefix)?;
        let (ca, cert, key) = (options.ca.as_deref(), options.cert.as_deref(), options.key.as_deref());
        let certificates = secrets::certificates(ca, cert, key)?;
        let client = client(info, certificates.as_ref()).map_err(|error| unusable(&error))?;
        Ok(Self {
            client,
            certificates,
            name,
            prefix,
            limit: options.limit,
            resp3: options.resp3,
            push: options.push,
            acks: Acks::new(options.acks, options.acks_limit.unwrap_or(options.limit)),
            quarantine,
        })
    }

    /// Host, port and database in canonical form.
    pub(crate) fn address(&self) -> String {
        self.name.split_once("://").map_or(self.name.as_str(), |(_, address)| address).to_lowercase()
    }

    /// The same server for releases only, without wake-ups and replicas.
    pub(crate) fn for_releases(&self) -> Self {
        Self { push: false, acks: None, ..self.clone() }
    }

    /// The same server with other connection settings.
    pub(crate) fn client_with(&self, info: ConnectionInfo) -> RedisResult<redis::Client> {
        client(info, self.certificates.as_ref())
    }

    /// The name of a lock on the server.
    pub(crate) fn wire<'a>(&self, key: &'a Key) -> Cow<'a, str> {
        if self.prefix.is_empty() { Cow::Borrowed(key.as_str()) } else { Cow::Owned(format!("{}{key}", self.prefix)) }
    }
}

#[derive(Debug)]
struct Options {
    prefix: Option<String>,
    compat: Option<String>,
    limit: Duration,
    resp3: bool,
    push: bool,
    acks: u32,
    acks_limit: Option<Duration>,
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    password_file: Option<String>,
    quarantine: Option<bool>,
    max_ttl: Option<Ttl>,
    trust_empty: Option<bool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: None,
            compat: None,
            limit: LIMIT,
            resp3: true,
            push: true,
            acks: 0,
            acks_limit: None,
            ca: None,
            cert: None,
            key: None,
            password_file: None,
            quarantine: None,
            max_ttl: None,
            trust_empty: None,
        }
    }
}

impl Options {
    fn read(&mut self, pair: &str) -> Result<(), Invalid> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decoded(value)?;
        match (name, value.as_str()) {
            ("prefix", _) => self.prefix = Some(compat::checked(name, value)?),
            ("compat", preset) => self.compat = Some(compat::prefix_of(preset)?),
            ("timeout", text) => self.limit = millis(name, text)?,
            ("acks", text) => {
                self.acks = text.parse().ok().filter(|acks| *acks <= REPLICAS_MAX).ok_or_else(|| {
                    Invalid::new(format!("acks= takes a number of replicas from 0 to {REPLICAS_MAX}, not {text:?}"))
                })?;
            }
            ("acks_timeout", text) => self.acks_limit = Some(millis(name, text)?),
            ("protocol", "resp2") => self.resp3 = false,
            ("protocol", "resp3") => self.resp3 = true,
            ("push", "off") => self.push = false,
            ("push", "on") => self.push = true,
            ("ca", file) => self.ca = Some(file.to_owned()),
            ("cert", file) => self.cert = Some(file.to_owned()),
            ("key", file) => self.key = Some(file.to_owned()),
            ("password_file", file) => self.password_file = Some(file.to_owned()),
            ("quarantine", "on") => self.quarantine = Some(true),
            ("quarantine", "off") => self.quarantine = Some(false),
            ("max_ttl", text) => {
                let ttl = text.parse().ok().and_then(|ms| Ttl::new(Duration::from_millis(ms)).ok());
                self.max_ttl = Some(ttl.ok_or_else(|| {
                    Invalid::new(format!("max_ttl= takes milliseconds from 10 to 86400000, not {text:?}"))
                })?);
            }
            ("trust_empty", "true") => self.trust_empty = Some(true),
            ("trust_empty", "false") => self.trust_empty = Some(false),
            _ => {
                return Err(Invalid::new(format!(
                    "{pair:?} is no option of a redis:// URL; there are prefix=P, compat=LIBRARY, timeout=MS, protocol=resp2|resp3, \
                     push=on|off, acks=N, acks_timeout=MS, ca=FILE, cert=FILE, key=FILE, password_file=FILE, quarantine=on|off, max_ttl=MS and trust_empty=true|false"
                )));
            }
        }
        Ok(())
    }

    fn with_password(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Invalid> {
        let Some(file) = &self.password_file else { return Ok(info) };
        let settings = info.redis_settings().clone();
        if settings.password().is_some() {
            return Err(Invalid::new("the password is in the URL, and password_file= is set too: use one of them"));
        }
        Ok(info.set_redis_settings(settings.set_password(secrets::password(file)?)))
    }

    /// The prefix of either option.
    fn prefix(&self) -> Result<String, Invalid> {
        match (&self.prefix, &self.compat) {
            (Some(_), Some(_)) => Err(Invalid::new("compat= and prefix= both set the prefix: use one of them")),
            (given, preset) => Ok(given.as_ref().or(preset.as_ref()).cloned().unwrap_or_default()),
        }
    }

    fn quarantine(&self, role: Role, prefix: &str) -> Result<Option<Quarantine>, Invalid> {
        if role == Role::Member && self.quarantine == Some(false) {
            return Err(Invalid::new(
                "redlock:// does not do without its quarantine: two could hold one lock when a server restarts. \
                 trust_empty=true trusts each server at once, at your risk",
            ));
        }
        if role == Role::Alone && self.quarantine != Some(true) {
            if self.max_ttl.is_some() || self.trust_empty.is_some() {
                return Err(Invalid::new("max_ttl= and trust_empty= require quarantine=on"));
            }
            return Ok(None);
        }
        let max_ttl = self.max_ttl.map_or_else(|| Ttl::new(LONGEST_TTL), Ok)?;
        Ok(Some(Quarantine::alone(prefix, max_ttl, self.trust_empty == Some(true))))
    }
}

fn millis(name: &str, text: &str) -> Result<Duration, Invalid> {
    let millis = text.parse::<u64>().ok().filter(|ms| (1..=60_000).contains(ms));
    let invalid = || Invalid::new(format!("{name}= takes milliseconds from 1 to 60000, not {text:?}"));
    millis.map(Duration::from_millis).ok_or_else(invalid)
}

fn percent_decoded(text: &str) -> Result<String, Invalid> {
    // The crate keeps what is no escape as it is.
    let is_escape = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    let decoded = percent_decode_str(text).decode_utf8().ok().filter(|_| text.split('%').skip(1).all(is_escape));
    decoded.map(Cow::into_owned).ok_or_else(|| Invalid::new(format!("{text:?} is not percent-encoded UTF-8")))
}

/// The error of the driver, without its kind.
fn unusable(error: &redis::RedisError) -> Invalid {
    let words = error.to_string();
    let words = words.strip_suffix(" - InvalidClientConfig").unwrap_or(&words);
    Invalid::new(format!("not a usable redis:// URL: {words}"))
}

/// The reason why a URL is invalid, which the driver does not report.
fn reason(base: &str) -> Option<Invalid> {
    let error = url::Url::parse(base).err()?;
    // The rest of a password after an unescaped character is parsed as host or port.
    let escape = "; in a user or a password, write @ : / # ? as %40 %3A %2F %23 %3F";
    let hint = if base.contains('@') { escape } else { "" };
    Some(Invalid::new(format!("not a usable redis:// URL: {error}{hint}")))
}

fn with_settings(info: ConnectionInfo) -> ConnectionInfo {
    // Small requests with a waiting caller: Nagle's algorithm would delay them.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    info.set_tcp_settings(tcp)
}

fn name_of(info: &ConnectionInfo) -> String {
    let db = info.redis_settings().db();
    let place = match info.addr() {
        ConnectionAddr::Tcp(host, port) => format!("redis://{host}:{port}"),
        ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{host}:{port}"),
        other => format!("redis+unix://{other}"),
    };
    if db == 0 { place } else { format!("{place}/{db}") }
}

fn client(info: ConnectionInfo, certificates: Option<&TlsCertificates>) -> RedisResult<redis::Client> {
    if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) && CryptoProvider::get_default().is_none() {
        // The driver uses the provider of the process, and panics without one. This fails only if there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    match certificates {
        None => redis::Client::open(info),
        Some(certificates) => redis::Client::build_with_tls(info, certificates.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_target_has_no_password() {
        let target = Target::parse("redis://alice:s3cret@localhost:7000/3").unwrap();
        assert_eq!(target.name, "redis://localhost:7000/3");
    }

    #[test]
    fn an_error_about_a_url_does_not_repeat_its_password() {
        for url in [
            "redis://u:s3cret@",
            "redis://u:s3cret@host:99999",
            "redis://u:s3cret@host?x=1",
            "redis://u:s3cret@h/a",
            "redis://u:a?s3cret@host",
            "redis://u:a?timeout=s3cret@host",
            "redis://u:s3cret@h?password_file=/dev/null",
        ] {
            let error = Target::parse(url).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn an_unknown_option_is_rejected_with_a_list_of_options() {
        let error = Target::parse("redis://h?tiemout=5").unwrap_err().to_string();
        assert!(error.contains("tiemout") && error.contains("timeout="), "{error}");
    }

    #[test]
    fn the_prefix_precedes_the_key() {
        let target = Target::parse("redis://h?prefix=redlock%3A").unwrap();
        assert_eq!(target.wire(&Key::new("orders").unwrap()), "redlock:orders");
    }

    #[test]
    fn a_quarantine_is_an_option_with_a_length() {
        assert!(Target::parse("redis://h").unwrap().quarantine.is_none());
        assert!(Target::parse("redis://h?quarantine=off").unwrap().quarantine.is_none());
        let quarantine = Target::parse("redis://h?quarantine=on&max_ttl=10000").unwrap().quarantine.unwrap();
        assert_eq!((quarantine.span(), quarantine.trust), (Duration::from_millis(10_112), false));
        let quarantine = Target::parse_as(Role::Member, "redis://h?trust_empty=true").unwrap().quarantine.unwrap();
        assert_eq!((quarantine.span(), quarantine.trust), (Duration::from_millis(60_612), true));
    }

    #[test]
    fn quarantine_options_without_a_quarantine_are_rejected() {
        for url in ["redis://h?max_ttl=1000", "redis://h?trust_empty=true", "redis://h?quarantine=on&max_ttl=5"] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
        assert!(Target::parse_as(Role::Member, "redis://h?quarantine=off").is_err());
    }

    #[test]
    fn an_address_has_a_canonical_form() {
        let address = |url| Target::parse(url).unwrap().address();
        assert_eq!(address("redis://u:p@Cache-1"), "cache-1:6379");
        assert_eq!(address("rediss://cache-1:6379/"), "cache-1:6379");
        assert_eq!(address("redis://cache-1/2"), "cache-1:6379/2");
    }

    #[test]
    fn a_timeout_of_zero_or_of_hours_is_rejected() {
        for value in ["0", "-1", "x", "3600000", ""] {
            for name in ["timeout", "acks_timeout"] {
                assert!(Target::parse(&format!("redis://h?{name}={value}")).is_err(), "{name}={value}");
            }
        }
    }

    #[test]
    fn replicas_are_waited_for_only_with_acks_and_by_default_for_the_server_timeout() {
        let acks = |query: &str| Target::parse(&format!("redis://h?{query}")).unwrap().acks;
        assert_eq!(acks("acks_timeout=7"), None);
        assert_eq!(acks("acks=0"), None);
        assert_eq!(acks("acks=2&timeout=300"), Acks::new(2, Duration::from_millis(300)));
        assert_eq!(acks("acks_timeout=7&acks=1&timeout=300"), Acks::new(1, Duration::from_millis(7)));
    }

    #[test]
    fn an_escape_that_is_none_is_refused() {
        for text in ["%", "a%4", "%zz", "%+4", "%4%41", "%ff"] {
            assert!(percent_decoded(text).is_err(), "{text}");
        }
        assert_eq!(percent_decoded("%e4%BA%92:100%25"), Ok("互:100%".to_owned()));
    }

    #[test]
    fn an_excessive_number_of_replicas_is_rejected() {
        for value in ["-1", "101", "all", ""] {
            assert!(Target::parse(&format!("redis://h?acks={value}")).is_err(), "{value}");
        }
    }
}
