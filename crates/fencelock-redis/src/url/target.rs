//! What a URL says about one server.

use super::acks::Acks;
use super::hosts::{Address, shown};
use super::options::{DEFAULT_TIMEOUT, Options, Role, percent_decoded};
use super::secrets::SecretFiles;
use super::sentinel::SentinelUrl;
use crate::cluster::view::ClusterView;
use crate::scripts::quarantine::Quarantine;
use crate::sentinel::Sentinels;
use crate::tls;
use fencelock_core::{Invalid, Key, parse_url};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// The content of a `redis://` URL.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Host, port and database, without credentials.
    pub(crate) name: String,
    pub(crate) client: redis::Client,
    /// The files of the URL.
    pub(crate) files: Arc<SecretFiles>,
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
    /// The sentinels that name the server to connect to. The address of `client` is then not used.
    pub(crate) sentinels: Option<Arc<Sentinels>>,
    /// The cluster of which this server is a node.
    pub(crate) cluster: Option<Arc<ClusterView>>,
    /// Whether its connections log nothing about the server: the user has not asked for them.
    pub(crate) is_internal: bool,
}

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
        parse_url(url, |url| Self::of(role, url))
    }

    fn of(role: Role, url: &str) -> Result<Self, Invalid> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let sentinel_url = SentinelUrl::parse(base)?;
        let base = sentinel_url.as_ref().map_or(base, |url| url.server.as_str());
        if let Some(missing) = tls::MISSING.filter(|_| base.starts_with("rediss:")) {
            return Err(Invalid::new(missing));
        }
        let (base, login) = socket_login(base);
        let info = base.as_ref().into_connection_info().map_err(|error| {
            // The message does not contain the URL, which may include a password.
            reason(&base).unwrap_or_else(|| unusable(&error))
        })?;
        let info = with_settings(info, login)?;
        let mut options = Options::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            options.read(pair)?;
        }
        let info = match options.db {
            None => info,
            // The URL of a socket cannot contain a database after the path.
            Some(db) if matches!(info.addr(), ConnectionAddr::Unix(_)) => {
                let settings = info.redis_settings().clone().set_db(db);
                info.set_redis_settings(settings)
            }
            Some(_) => return Err(Invalid::new("db= is for redis+unix:// URLs; in others, write redis://HOST/DB")),
        };
        options.check(&info, sentinel_url.is_some())?;
        let login = info.redis_settings().clone();
        let info = match (login.username(), login.password(), &options.files.password) {
            // Without a password the driver does not log in, and has the rights of the default user.
            (Some(_), None, None) => info.set_redis_settings(login.set_password("")),
            _ => info,
        };
        let (prefix, limit) = (options.prefix(), options.limit.unwrap_or(DEFAULT_TIMEOUT));
        let name = match &sentinel_url {
            Some(url) => url.name(info.redis_settings().db()),
            None => name_of(&info),
        };
        let files = Arc::new(SecretFiles::new(options.files.clone())?);
        let mut quarantine = options.quarantine(role, &prefix)?;
        let mut sentinels = None;
        if let Some(url) = &sentinel_url {
            // The sentinels have separate credentials, and the same certificates.
            let (login, files) = options.sentinel_login()?;
            let addressed = |address: &Address| info.clone().set_addr(at(info.addr(), address));
            let node = |address: &Address| addressed(address).set_redis_settings(login.clone());
            sentinels = Some(Arc::new(Sentinels::new(url, limit, quarantine.is_some(), &Arc::new(files), node)));
            if let Some(quarantine) = &mut quarantine {
                quarantine.monitor(&url.deployment());
            }
        }
        let client = files.client(info).map_err(|error| unusable(&error))?;
        Ok(Self {
            sentinels,
            client,
            files,
            name,
            prefix,
            limit,
            resp3: options.resp3.unwrap_or(true),
            push: options.push.unwrap_or(true),
            acks: Acks::new(options.acks, options.acks_limit.unwrap_or(limit)),
            quarantine,
            cluster: None,
            is_internal: false,
        })
    }

    /// Host, port and database in canonical form.
    pub(crate) fn address(&self) -> String {
        self.name.split_once("://").map_or(self.name.as_str(), |(_, address)| address).to_lowercase()
    }

    /// The same server for releases only, without wake-ups and replicas.
    pub(crate) fn for_releases(&self) -> Self {
        // The task of a connection ends with its runtime.
        let sentinels = self.sentinels.as_ref().map(|sentinels| Arc::new(sentinels.fresh()));
        Self { push: false, acks: None, sentinels, is_internal: true, ..self.clone() }
    }

    /// The server at this address, with the credentials and options of this URL.
    pub(crate) fn at(&self, address: &Address) -> RedisResult<Self> {
        let info = self.client.get_connection_info().clone();
        let addr = at(info.addr(), address);
        Ok(Self { client: self.client_with(info.set_addr(addr))?, ..self.clone() })
    }

    /// The node of a cluster at this address, with the credentials and options of this URL.
    pub(crate) fn node_of(&self, cluster: &Arc<ClusterView>, address: &Address) -> Result<Self, Invalid> {
        let node = self.at(address).map_err(|error| Invalid::new(error.to_string()))?;
        Ok(Self { name: name_of(node.client.get_connection_info()), cluster: Some(Arc::clone(cluster)), ..node })
    }

    /// The host without brackets, its port, and whether it is reached over TLS; `None` for a socket.
    pub(crate) fn tcp(&self) -> Option<(&str, u16, bool)> {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) => Some((host, *port, false)),
            ConnectionAddr::TcpTls { host, port, .. } => Some((host, *port, true)),
            _ => None,
        }
    }

    /// Host and port; `None` for a socket.
    pub(crate) fn tcp_address(&self) -> Option<Address> {
        self.tcp().map(|(host, port, _)| (host.to_owned(), port))
    }

    /// The host without brackets; empty for a socket.
    pub(crate) fn host(&self) -> &str {
        self.tcp().map_or("", |(host, ..)| host)
    }

    /// The same server with other connection settings, and the present content of the files of the URL.
    pub(crate) fn client_with(&self, info: ConnectionInfo) -> RedisResult<redis::Client> {
        self.files.client(info)
    }

    /// The name of a lock on the server.
    pub(crate) fn redis_key<'a>(&self, key: &'a Key) -> Cow<'a, str> {
        if self.prefix.is_empty() { Cow::Borrowed(key.as_str()) } else { Cow::Owned(format!("{}{key}", self.prefix)) }
    }
}

/// The error of the driver, without its kind.
fn unusable(error: &redis::RedisError) -> Invalid {
    let words = error.to_string();
    let words = words.strip_suffix(" - InvalidClientConfig").unwrap_or(&words);
    Invalid::new(format!("not a usable redis:// URL: {words}"))
}

/// The reason why a URL is invalid, which the driver does not report.
fn reason(base: &str) -> Option<Invalid> {
    if !base.contains("://") {
        return Some(Invalid::new("not a usable redis:// URL: // is missing before the host, as in redis://HOST"));
    }
    let error = url::Url::parse(base).err()?;
    // The rest of a password after an unescaped character is parsed as host or port.
    let escape = "; in a user or a password, write @ : / # ? as %40 %3A %2F %23 %3F";
    let hint = if base.contains('@') { escape } else { "" };
    Some(Invalid::new(format!("not a usable redis:// URL: {error}{hint}")))
}

/// The base of a URL and its credentials, if the URL has a path to a socket: the driver accepts credentials only with a host.
fn socket_login(base: &str) -> (Cow<'_, str>, Option<&str>) {
    let split = base.strip_prefix("redis+unix://").and_then(|rest| rest.split_once('@'));
    match split.filter(|(login, _)| !login.contains('/')) {
        Some((login, path)) => (Cow::Owned(format!("redis+unix://{path}")), Some(login)),
        None => (Cow::Borrowed(base), None),
    }
}

/// The same kind of connection to another address.
fn at(addr: &ConnectionAddr, (host, port): &Address) -> ConnectionAddr {
    match addr {
        ConnectionAddr::TcpTls { insecure, .. } => {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: *insecure, tls_params: None }
        }
        _ => ConnectionAddr::Tcp(host.clone(), *port),
    }
}

fn with_settings(info: ConnectionInfo, login: Option<&str>) -> Result<ConnectionInfo, Invalid> {
    // Small requests with a waiting caller: Nagle's algorithm would delay them.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    // Some proxies close the connection at CLIENT SETINFO, which the driver sends otherwise.
    let mut settings = info.redis_settings().clone().set_skip_set_lib_name();
    let (user, password) = login.map_or(("", ""), |login| login.split_once(':').unwrap_or((login, "")));
    if !user.is_empty() {
        settings = settings.set_username(percent_decoded(user)?);
    }
    if !password.is_empty() {
        settings = settings.set_password(percent_decoded(password)?);
    }
    Ok(info.set_tcp_settings(tcp).set_redis_settings(settings))
}

fn name_of(info: &ConnectionInfo) -> String {
    let (address, before_db) = match info.addr() {
        ConnectionAddr::Tcp(host, port) => (format!("redis://{}", shown(&(host.clone(), *port))), "/"),
        ConnectionAddr::TcpTls { host, port, .. } => (format!("rediss://{}", shown(&(host.clone(), *port))), "/"),
        other => (format!("redis+unix://{other}"), "?db="),
    };
    let db = info.redis_settings().db();
    if db == 0 { address } else { format!("{address}{before_db}{db}") }
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
            "redis://h?password=s3cret",
            "redis://h?prefix=s3cret%zz",
            "redis+unix://u:s3cret%zz@/run/s",
            "redis+unix://s3cret%ff@/run/s",
            "redis+unix://u:s3cret@",
            "redis+unix://u:s3cret@h",
            "redis+unix://u:6379/s3cret@/run/s",
            "redis+sentinel://u:6379/s3cret%zz@h/m",
            "redis+sentinel://u:6379/s3cret@h/m",
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
        assert_eq!(target.redis_key(&Key::new("orders").unwrap()), "redlock:orders");
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
    fn a_socket_has_a_login_and_its_database_is_an_option() {
        let target = Target::parse("redis+unix://alice:s3%40cret@/run/redis.sock?db=3&prefix=x").unwrap();
        assert_eq!(target.name, "redis+unix:///run/redis.sock?db=3");
        let settings = target.client.get_connection_info().redis_settings().clone();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("alice"), Some("s3@cret"), 3));
        for url in ["redis://bob@h", "redis+unix://bob@/s"] {
            let settings = Target::parse(url).unwrap().client.get_connection_info().redis_settings().clone();
            assert_eq!((settings.username(), settings.password()), (Some("bob"), Some("")), "nobody else's rights");
        }
        for url in ["redis+unix://run/redis.sock", "redis+unix:///s?db=-1", "redis://h?db=1", "redis+unix://u@"] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn sentinel_options_are_for_sentinels() {
        let target = Target::parse("redis+sentinel://u:p@a,b/m/2?quarantine=on&max_ttl=10000").unwrap();
        assert_eq!(target.name, "redis+sentinel://a:26379,b:26379/m/2");
        assert_eq!(
            target.quarantine.unwrap().span(),
            Duration::from_millis(15_162),
            "the window of the old master is added"
        );
        for url in ["redis://h?sentinel_user=x", "redis+sentinel://a/m?sentinel_user=x", "redis+sentinel://a/m/x"] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
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
    fn a_wait_for_replicas_needs_acks_and_its_default_limit_is_the_server_timeout() {
        let acks = |query: &str| Target::parse(&format!("redis://h?{query}")).unwrap().acks;
        assert_eq!(acks("acks_timeout=7"), None);
        assert_eq!(acks("acks=0"), None);
        assert_eq!(acks("acks=2&timeout=300"), Acks::new(2, Duration::from_millis(300)));
        assert_eq!(acks("acks_timeout=7&acks=1&timeout=300"), Acks::new(1, Duration::from_millis(7)));
    }

    #[test]
    fn an_invalid_escape_is_refused() {
        for text in ["%", "a%4", "%zz", "%+4", "%4%41", "%ff"] {
            assert!(Target::parse(&format!("redis://h?prefix={text}")).is_err(), "{text}");
        }
        assert_eq!(Target::parse("redis://h?prefix=%e4%BA%92:100%25").unwrap().prefix, "互:100%");
    }

    #[test]
    fn an_excessive_number_of_replicas_is_rejected() {
        for value in ["-1", "101", "all", ""] {
            assert!(Target::parse(&format!("redis://h?acks={value}")).is_err(), "{value}");
        }
    }
}
