use fencelock_core::{Invalid, Key};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult, TlsCertificates};
use rustls::crypto::CryptoProvider;
use std::borrow::Cow;
use std::time::Duration;

/// What a `redis://` URL says.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Host, port and database, without credentials.
    pub(crate) name: String,
    pub(crate) client: redis::Client,
    certificates: Option<Vec<u8>>,
    /// Put before every key on the wire.
    pub(crate) prefix: String,
    /// How long to wait for a connection, and for an answer.
    pub(crate) limit: Duration,
    /// Whether to try for RESP3, which carries wake-ups on the same connection and tells of foreign changes.
    pub(crate) resp3: bool,
    /// Whether to have wake-ups at all.
    pub(crate) push: bool,
}

/// A second is a thousand round trips in a data centre and five around the world.
const LIMIT: Duration = Duration::from_secs(1);

impl Target {
    /// Reads `redis://[user:password@]host[:port][/db][?option=value&...]`, or `rediss://` for TLS.
    ///
    /// | option | meaning |
    /// |---|---|
    /// | `prefix=P` | put before every key, to share locks with programs that do so |
    /// | `timeout=MS` | longest wait for a connection or an answer, 1000 ms unless set |
    /// | `protocol=resp2` | do without RESP3 |
    /// | `push=off` | do without wake-ups: waiters only poll |
    /// | `ca=FILE` | with `rediss://`: trust the certificates in this PEM file instead of the system's |
    pub(crate) fn parse(url: &str) -> Result<Self, Invalid> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let info = base.into_connection_info().map_err(|error| {
            // The URL may carry a password, so the message does not carry the URL.
            Invalid::new(format!("not a usable redis:// URL: {error}"))
        })?;
        let info = with_settings(info);
        let name = name_of(&info);
        let mut options = Options::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            options.read(pair)?;
        }
        let certificates = options.ca.as_deref().map(read_certificates).transpose()?;
        let client = client(info, certificates.as_deref())
            .map_err(|error| Invalid::new(format!("not a usable redis:// URL: {error}")))?;
        Ok(Self {
            client,
            certificates,
            name,
            prefix: options.prefix,
            limit: options.limit,
            resp3: options.resp3,
            push: options.push,
        })
    }

    /// The same server with other settings.
    pub(crate) fn client_with(&self, info: ConnectionInfo) -> RedisResult<redis::Client> {
        client(info, self.certificates.as_deref())
    }

    /// The name of a lock on the wire.
    pub(crate) fn wire<'a>(&self, key: &'a Key) -> Cow<'a, str> {
        if self.prefix.is_empty() { Cow::Borrowed(key.as_str()) } else { Cow::Owned(format!("{}{key}", self.prefix)) }
    }
}

#[derive(Debug)]
struct Options {
    prefix: String,
    limit: Duration,
    resp3: bool,
    push: bool,
    ca: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { prefix: String::new(), limit: LIMIT, resp3: true, push: true, ca: None }
    }
}

impl Options {
    fn read(&mut self, pair: &str) -> Result<(), Invalid> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decoded(value)?;
        match (name, value.as_str()) {
            ("prefix", _) => {
                if value.len() > 128 || value.chars().any(char::is_control) || value.starts_with(Key::RESERVED) {
                    return Err(Invalid::new("prefix= takes at most 128 bytes without control characters"));
                }
                self.prefix = value;
            }
            ("timeout", text) => {
                let millis = text.parse::<u64>().ok().filter(|ms| (1..=60_000).contains(ms)).ok_or_else(|| {
                    Invalid::new(format!("timeout= takes milliseconds from 1 to 60000, not {text:?}"))
                })?;
                self.limit = Duration::from_millis(millis);
            }
            ("protocol", "resp2") => self.resp3 = false,
            ("protocol", "resp3") => self.resp3 = true,
            ("push", "off") => self.push = false,
            ("push", "on") => self.push = true,
            ("ca", file) => self.ca = Some(file.to_owned()),
            _ => {
                return Err(Invalid::new(format!(
                    "{pair:?} is no option of a redis:// URL; there are prefix=P, timeout=MS, protocol=resp2|resp3, \
                     push=on|off and ca=FILE"
                )));
            }
        }
        Ok(())
    }
}

fn percent_decoded(text: &str) -> Result<String, Invalid> {
    let invalid = || Invalid::new(format!("{text:?} is not percent-encoded UTF-8"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits: Vec<u8> = rest.by_ref().take(2).copied().collect();
        let digits = std::str::from_utf8(&digits).map_err(|_| invalid())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| invalid())?);
    }
    String::from_utf8(bytes).map_err(|_| invalid())
}

fn with_settings(info: ConnectionInfo) -> ConnectionInfo {
    // Small requests that somebody waits for: Nagle's algorithm would hold them back.
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

fn read_certificates(file: &str) -> Result<Vec<u8>, Invalid> {
    std::fs::read(file).map_err(|error| Invalid::new(format!("cannot read the certificates in {file}: {error}")))
}

fn client(info: ConnectionInfo, certificates: Option<&[u8]>) -> RedisResult<redis::Client> {
    if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) && CryptoProvider::get_default().is_none() {
        // The driver takes that of the process and panics without one. It fails only if somebody was faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    match certificates {
        None => redis::Client::open(info),
        Some(pem) => {
            let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem.to_vec()) };
            redis::Client::build_with_tls(info, certificates)
        }
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
        for url in
            ["redis://u:s3cret@", "redis://u:s3cret@host:99999", "redis://u:s3cret@host?x=1", "redis://u:s3cret@h/a"]
        {
            let error = Target::parse(url).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn an_unknown_option_is_named_with_the_known_ones() {
        let error = Target::parse("redis://h?tiemout=5").unwrap_err().to_string();
        assert!(error.contains("tiemout") && error.contains("timeout="), "{error}");
    }

    #[test]
    fn a_prefix_goes_before_the_key() {
        let target = Target::parse("redis://h?prefix=redlock%3A").unwrap();
        assert_eq!(target.wire(&Key::new("orders").unwrap()), "redlock:orders");
    }

    #[test]
    fn a_timeout_of_nothing_or_of_hours_is_refused() {
        for value in ["0", "-1", "x", "3600000", ""] {
            assert!(Target::parse(&format!("redis://h?timeout={value}")).is_err(), "{value}");
        }
    }
}
