//! What a URL names: the servers, the database, and the options.

use fencelock_core::{Drift, Fault, Invalid, Ttl, parse_url, quarantine};
use percent_encoding::percent_decode_str;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const DEFAULT_PORT: u16 = 5432;
const DEFAULT_SCHEMA: &str = "fencelock";
/// A second is a thousand round trips in a data centre and five around the world.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a process that gets no notifications asks for hand-offs to all its waiters.
const DEFAULT_POLL: Duration = Duration::from_millis(100);
/// Names are cut off behind this by the server, so two long ones might be the same.
const NAME_MAX: usize = 63;
/// A password is shorter.
const PASSWORD_FILE_MAX: u64 = 4 * 1024;
/// Twice the default TTL.
const LONGEST_TTL: u64 = 60_000;

/// A parsed URL.
#[derive(Clone)]
pub(crate) struct Target {
    /// The URL without secrets and without options that do not change which locks are meant.
    pub(crate) name: String,
    pub(crate) hosts: Vec<Host>,
    pub(crate) user: Option<String>,
    pub(crate) database: Option<String>,
    password: Option<String>,
    password_file: Option<PathBuf>,
    /// The password of the file that a server accepted last.
    accepted: Arc<Mutex<Option<String>>>,
    pub(crate) schema: String,
    pub(crate) create: bool,
    pub(crate) limit: Duration,
    pub(crate) poll: Duration,
    pub(crate) connections: usize,
    pub(crate) quarantine: Quarantine,
    pub(crate) max_ttl: Ttl,
    pub(crate) tls: TlsMode,
    pub(crate) root_cert: Option<PathBuf>,
}

/// An address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Tcp(String, u16),
    /// The socket `.s.PGSQL.PORT` in this directory.
    Unix(PathBuf, u16),
}

/// Whether a server that may have lost locks grants none until their leases have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quarantine {
    Off,
    /// If its standbys may lack the last commits, or another client has asked for it. Longer leases are allowed, and not covered.
    Auto,
    On,
}

/// The `sslmode=` of libpq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsMode {
    Disable,
    /// TLS if the server has it, without a check of its certificate.
    Prefer,
    /// TLS without a check of the certificate.
    Require,
    /// The certificate is checked, with the name of the host.
    VerifyFull,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, Invalid> {
        parse_url(url, Self::of)
    }

    fn of(url: &str) -> Result<Self, Invalid> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| Invalid::new("expected postgres://[USER@]HOST[:PORT]/DATABASE"))?;
        if rest.contains('#') {
            return Err(Invalid::new("a postgres:// URL has no fragment: write '#' as %23"));
        }
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').map_or((login, None), |(user, word)| (user, Some(word)));
        let mut target = Self {
            name: String::new(),
            hosts: Vec::new(),
            user: some(decoded("the user", user)?),
            database: some(decoded("the database", database)?),
            password: password.map(|password| decoded("the password", password)).transpose()?,
            password_file: None,
            accepted: Arc::default(),
            schema: DEFAULT_SCHEMA.to_owned(),
            create: false,
            limit: DEFAULT_TIMEOUT,
            poll: DEFAULT_POLL,
            connections: 1,
            quarantine: Quarantine::Auto,
            max_ttl: Ttl::new(Duration::from_millis(LONGEST_TTL))?,
            tls: TlsMode::Prefer,
            root_cert: None,
        };
        let mut place = Place::default();
        let mut seen = Vec::new();
        for (name, value) in
            options.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        {
            if seen.contains(&name) {
                return Err(Invalid::new(format!("the option {name}= is given twice")));
            }
            seen.push(name);
            target.read_option(&mut place, name, &decoded(name, value)?)?;
        }
        target.hosts = place.hosts(hosts)?;
        if target.root_cert.is_some() && target.tls != TlsMode::VerifyFull {
            return Err(Invalid::new(
                "sslrootcert= is for sslmode=verify-full, which checks the certificate of the server",
            ));
        }
        if target.password_file.is_some() && target.password.is_some() {
            return Err(Invalid::new("the URL has a password and password_file=: write one of them"));
        }
        target.name = target.name_of();
        Ok(target)
    }

    fn read_option(&mut self, place: &mut Place, name: &str, value: &str) -> Result<(), Invalid> {
        match (name, value) {
            ("schema", _) => self.schema = checked_schema(value)?,
            ("create", "true") => self.create = true,
            ("create", "false") => self.create = false,
            ("timeout", _) => self.limit = millis(name, value)?,
            ("poll", _) => self.poll = millis(name, value)?,
            ("connections", _) => {
                let number = value.parse().ok().filter(|number| (1..=64).contains(number));
                self.connections =
                    number.ok_or_else(|| Invalid::new(format!("connections= takes 1 to 64, not {value:?}")))?;
            }
            ("quarantine", "on") => self.quarantine = Quarantine::On,
            ("quarantine", "off") => self.quarantine = Quarantine::Off,
            ("max_ttl", _) => self.max_ttl = Ttl::new(Duration::from_millis(value.parse().unwrap_or_default()))?,
            ("sslmode", "disable") => self.tls = TlsMode::Disable,
            ("sslmode", "prefer") => self.tls = TlsMode::Prefer,
            ("sslmode", "require") => self.tls = TlsMode::Require,
            ("sslmode", "verify-full") => self.tls = TlsMode::VerifyFull,
            ("sslrootcert", _) => self.root_cert = Some(absolute(value)),
            ("password_file", _) => self.password_file = Some(absolute(value)),
            ("host", _) => place.host = some(value.to_owned()),
            ("port", _) => place.port = Some(port(value)?),
            ("user", _) => self.user = some(value.to_owned()),
            _ => {
                // The value of an unknown option may be a password.
                let is_known = matches!(name, "create" | "sslmode" | "quarantine");
                let shown = if is_known { format!("{name}={value}") } else { name.to_owned() };
                return Err(Invalid::new(format!(
                    "{shown:?} is not an option of a postgres:// URL; supported: schema=NAME, create=true|false, timeout=MS, poll=MS, \
                     connections=N, quarantine=on|off, max_ttl=MS, sslmode=disable|prefer|require|verify-full, sslrootcert=FILE, password_file=FILE, host=DIR, \
                     port=N and user=NAME"
                )));
            }
        }
        Ok(())
    }

    /// The password, if there is one. The file is read for each connection, because it may change. While it cannot be read, the password
    /// that was accepted last is used.
    pub(crate) fn password(&self) -> Result<Option<String>, String> {
        let Some(file) = &self.password_file else { return Ok(self.password.clone()) };
        let failed = |why: io::Error| format!("password_file={}: {why}", file.display());
        match (first_line(file).map_err(failed), self.accepted()) {
            (Err(why), Some(last)) => {
                tracing::warn!("{why}; the password that was accepted last is used");
                Ok(Some(last))
            }
            (read, _) => read.map(Some),
        }
    }

    /// To be called after a login with this password.
    pub(crate) fn accept(&self, password: Option<String>) {
        if self.password_file.is_some() {
            *self.accepted.lock().unwrap_or_else(PoisonError::into_inner) = password;
        }
    }

    /// The kind of a fault at a login. Where passwords are changed, the server is usually changed first and the file a moment later: if
    /// the server accepted a password of the file before, a retry helps.
    pub(crate) fn kind(&self, fault: Fault) -> Fault {
        if fault == Fault::Denied && self.accepted().is_some() { Fault::Revoked } else { fault }
    }

    fn accepted(&self) -> Option<String> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long a quarantine lasts; zero without one.
    pub(crate) fn span(&self) -> Duration {
        match self.quarantine {
            Quarantine::Off => Duration::ZERO,
            Quarantine::Auto | Quarantine::On => quarantine(self.max_ttl.get(), Drift::default()),
        }
    }

    /// The longest TTL that is allowed, if the quarantine must cover all leases.
    pub(crate) fn longest_ttl(&self) -> Option<Duration> {
        (self.quarantine == Quarantine::On).then(|| self.max_ttl.get())
    }

    /// The schema for SQL, quoted, so that its case counts.
    pub(crate) fn quoted_schema(&self) -> String {
        format!("\"{}\"", self.schema.replace('"', "\"\""))
    }

    fn name_of(&self) -> String {
        let hosts = self.hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(",");
        let schema = if self.schema == DEFAULT_SCHEMA { String::new() } else { format!("?schema={}", self.schema) };
        let database = self.database.as_deref().or(self.user.as_deref()).unwrap_or_default();
        format!("postgres://{hosts}/{database}{schema}")
    }

    /// The URL with this password, if it has none.
    pub(crate) fn with_password(url: &str, password: &str) -> Result<String, Invalid> {
        let target = Self::parse(url)?;
        if target.password.is_some() || target.password_file.is_some() {
            return Ok(url.to_owned());
        }
        let encoded = percent_encoding::utf8_percent_encode(password, percent_encoding::NON_ALPHANUMERIC);
        let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, after) = rest.split_at(end);
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        Ok(format!("{scheme}://{user}:{encoded}@{hosts}{after}"))
    }
}

/// The same file after a change of the working directory.
fn absolute(file: &str) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.into())
}

/// The first line of a regular file: a pipe may block, and a device may have no end.
fn first_line(file: &Path) -> io::Result<String> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    if File::open(file)?.take(PASSWORD_FILE_MAX + 1).read_to_string(&mut text)? as u64 > PASSWORD_FILE_MAX {
        return Err(io::Error::other("longer than a password"));
    }
    let line = text.lines().next().filter(|line| !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| io::Error::other("no password in its first line"))
}

/// The password is not shown.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The default is written as nothing, so that a name does not depend on the machine.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(dir, DEFAULT_PORT) if dir.as_path() == default_dir() => Ok(()),
            Self::Unix(dir, port) => write!(f, "{}:{port}", dir.display()),
        }
    }
}

/// The options that name a server outside of the authority, as libpq has them: a directory of sockets has slashes.
#[derive(Debug, Default)]
struct Place {
    host: Option<String>,
    port: Option<u16>,
}

impl Place {
    fn hosts(&self, authority: &str) -> Result<Vec<Host>, Invalid> {
        let default = self.port.unwrap_or(DEFAULT_PORT);
        match (authority, &self.host) {
            ("", Some(hosts)) if hosts.contains('@') && !hosts.starts_with('/') => {
                Err(Invalid::new("host= has an @: a user and a password are written before the hosts of the URL"))
            }
            ("", Some(hosts)) => Ok(hosts.split(',').map(|host| host_of(host, default)).collect()),
            ("", None) => Ok(vec![Host::Unix(default_dir().to_owned(), default)]),
            (_, Some(_)) => Err(Invalid::new("the URL names a host, and host= another one: write one of them")),
            (hosts, None) => hosts.split(',').map(|host| self.host_and_port(host, default)).collect(),
        }
    }

    fn host_and_port(&self, text: &str, default: u16) -> Result<Host, Invalid> {
        // The colons of an IPv6 address are in brackets.
        let bracket = text.rfind(']').map_or(0, |at| at + 1);
        let (host, number) = match text[bracket..].rfind(':') {
            Some(_) if self.port.is_some() => return Err(Invalid::new("the URL and port= both name a port")),
            Some(at) => (&text[..bracket + at], port(&text[bracket + at + 1..])?),
            None => (text, default),
        };
        let host = decoded("the host", host.trim_start_matches('[').trim_end_matches(']'))?;
        if host.is_empty() {
            return Err(Invalid::new(
                "the URL has an empty host name: for the socket of this machine, write postgres:///DATABASE",
            ));
        }
        Ok(host_of(&host, number))
    }
}

fn host_of(host: &str, port: u16) -> Host {
    if host.starts_with('/') { Host::Unix(host.into(), port) } else { Host::Tcp(host.to_ascii_lowercase(), port) }
}

/// Where the packages of Linux distributions put the socket; the default of the sources is the other one.
fn default_dir() -> &'static Path {
    let packaged = Path::new("/var/run/postgresql");
    if packaged.is_dir() { packaged } else { Path::new("/tmp") }
}

fn checked_schema(name: &str) -> Result<String, Invalid> {
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with("pg_") {
        let text =
            format!("schema= takes a name of 1 to {NAME_MAX} bytes that does not begin with pg_, not {name:.80?}");
        return Err(Invalid::new(text));
    }
    Ok(name.to_owned())
}

fn decoded(what: &str, text: &str) -> Result<String, Invalid> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| Invalid::new(format!("{what} in the URL is not UTF-8")))?;
    if decoded.contains('\0') {
        return Err(Invalid::new(format!("{what} in the URL contains NUL, which no name in Postgres has")));
    }
    Ok(decoded.into_owned())
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn port(text: &str) -> Result<u16, Invalid> {
    let port = text.parse().ok().filter(|port| *port != 0);
    // What is written there may be a password, if the host is missing.
    port.ok_or_else(|| Invalid::new("a port is a number from 1 to 65535"))
}

fn millis(name: &str, text: &str) -> Result<Duration, Invalid> {
    let millis = text.parse().ok().filter(|millis| (10..=3_600_000).contains(millis));
    let refused = || Invalid::new(format!("{name}= takes milliseconds from 10 to 3600000, not {text:?}"));
    millis.map(Duration::from_millis).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Host {
        Host::Tcp(host.to_owned(), port)
    }

    #[test]
    fn a_url_names_servers_user_and_database() {
        let target = Target::parse("postgres://me:p%40ss@Db.example:7,[::1]/orders?schema=Locks&timeout=2000").unwrap();
        assert_eq!(target.hosts, [tcp("db.example", 7), tcp("::1", 5432)]);
        assert_eq!((target.user.as_deref(), target.database.as_deref()), (Some("me"), Some("orders")));
        assert_eq!(target.password().unwrap().as_deref(), Some("p@ss"));
        assert_eq!(target.limit, Duration::from_secs(2));
        assert_eq!(target.quoted_schema(), "\"Locks\"");
        assert!(!format!("{target:?} {}", target.name).contains("ss@"));
        assert!(Target::parse("postgresql://h/d").is_ok());
    }

    #[test]
    fn without_a_host_the_socket_of_this_machine_is_used() {
        let target = Target::parse("postgres:///orders").unwrap();
        assert_eq!((target.name.as_str(), target.hosts.len()), ("postgres:///orders", 1));
        let named = Target::parse("postgres:///orders?host=/run/pg&port=7").unwrap();
        assert_eq!(named.hosts, [Host::Unix("/run/pg".into(), 7)]);
        assert_eq!(Target::parse("postgres://%2Frun%2Fpg:7/orders").unwrap().hosts, named.hosts);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_name() {
        for (url, named) in [
            ("postgres:orders", "expected postgres://"),
            ("postgres://h:0/d", "65535"),
            ("postgres://h:x/d", "65535"),
            ("postgres://,h/d", "empty host"),
            ("postgres://h/d?schema=", "schema="),
            ("postgres://h/d?schema=pg_x", "schema="),
            ("postgres://h/d%00x", "NUL"),
            ("postgres://h/%FF", "UTF-8"),
            ("postgres://h/d?timeout=1", "timeout="),
            ("postgres://h/d?timeout=1000&timeout=2000", "twice"),
            ("postgres://h/d?connections=0", "connections="),
            ("postgres://h/d?sslmode=allow", "sslmode=allow"),
            ("postgres://h/d?quarantine=maybe", "quarantine=maybe"),
            ("postgres://h/d?max_ttl=1", "10 ms"),
            ("postgres://h/d?sslrootcert=/ca.pem", "verify-full"),
            ("postgres://h/d?host=/run", "host="),
            ("postgres:///d?host=u%3Ap%40h", "host="),
            ("postgres://h:7/d?port=8", "port="),
            ("postgres://u:p@h/d?password_file=/f", "password_file"),
            ("postgres://h/d#x", "fragment"),
        ] {
            let error = Target::parse(url).unwrap_err().to_string();
            assert!(error.contains(named), "{url}: {error}");
        }
        let secret = Target::parse("postgres://h/d?pasword=s3cret").unwrap_err().to_string();
        assert!(secret.contains("\"pasword\" is not an option") && !secret.contains("s3cret"), "{secret}");
    }

    #[test]
    fn a_password_beside_the_url_is_for_a_url_without_one() {
        let with = |url| Target::with_password(url, "a/b").unwrap();
        assert_eq!(with("postgres://me@h/d?create=true"), "postgres://me:a%2Fb@h/d?create=true");
        assert_eq!(with("postgres:///d"), "postgres://:a%2Fb@/d");
        assert_eq!(with("postgres://me:x@h/d"), "postgres://me:x@h/d");
        assert_eq!(Target::parse(&with("postgres:///d")).unwrap().password().unwrap().as_deref(), Some("a/b"));
    }

    #[test]
    fn files_are_the_same_after_a_change_of_the_working_directory() {
        let target = Target::parse("postgres://h/d?sslmode=verify-full&sslrootcert=ca.pem&password_file=./p").unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!((target.root_cert, target.password_file), (Some(here.join("ca.pem")), Some(here.join("p"))));
    }

    #[test]
    fn a_password_is_the_first_line_of_a_regular_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        let read = |file: &Path| first_line(file);
        for (text, expected) in [("s3cret\r\nnot this\n", Some("s3cret")), ("", None), ("\ns3cret", None)] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(read(&file).ok().as_deref(), expected, "{text:?}");
        }
        std::fs::write(&file, "s".repeat(5000)).unwrap();
        assert!(read(&file).is_err());
        for (endless, why) in
            [("/dev/zero", "not a regular file"), ("/", "not a regular file"), ("/nowhere", "No such")]
        {
            assert!(read(Path::new(endless)).unwrap_err().to_string().contains(why), "{endless}");
        }
    }

    #[test]
    fn names_that_fold_case_in_sql_are_kept() {
        let target = Target::parse("postgres://h/d?schema=My%22Locks").unwrap();
        assert_eq!(target.quoted_schema(), "\"My\"\"Locks\"");
    }
}
