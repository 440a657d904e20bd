//! What a URL names: the servers, the database, and the options.

use fencelock_core::{Drift, Fault, Invalid, Ttl, lock, parse_url, quarantine};
use percent_encoding::percent_decode_str;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_postgres::config::ChannelBinding;

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
const PGPASS_MAX: u64 = 1024 * 1024;
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
    /// What libpq takes from the environment: a password, the file with passwords, and the user.
    environment: [Option<String>; 3],
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
    /// The certificate of the client, and its key.
    pub(crate) client_cert: Option<PathBuf>,
    pub(crate) client_key: Option<PathBuf>,
    pub(crate) channel_binding: ChannelBinding,
    pub(crate) application_name: String,
    /// How long each server of the URL may take for a connection.
    pub(crate) connect: Option<Duration>,
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
    /// The certificate is checked, but not the name of the host.
    VerifyCa,
    /// The certificate is checked, with the name of the host.
    VerifyFull,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, Invalid> {
        Self::parse_in(url, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn parse_in(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Invalid> {
        let pgpass = || Some(variable("HOME")? + "/.pgpass");
        let passfile = variable("PGPASSFILE").or_else(pgpass);
        let environment = [variable("PGPASSWORD"), passfile, variable("USER")];
        parse_url(url, |url| Self::of(url, environment.clone()))
    }

    fn of(url: &str, environment: [Option<String>; 3]) -> Result<Self, Invalid> {
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
            environment,
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
            client_cert: None,
            client_key: None,
            channel_binding: ChannelBinding::Prefer,
            application_name: "fencelock".to_owned(),
            connect: None,
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
        match target.tls {
            // As in libpq.
            TlsMode::Require if target.root_cert.is_some() => target.tls = TlsMode::VerifyCa,
            TlsMode::Disable | TlsMode::Prefer if target.root_cert.is_some() => {
                return Err(Invalid::new(
                    "sslrootcert= is for sslmode=verify-full, which checks the certificate of the server",
                ));
            }
            _ => {}
        }
        if target.client_cert.is_some() != target.client_key.is_some() {
            return Err(Invalid::new(
                "sslcert= and sslkey= are the certificate of this client and its key: write both",
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
            ("sslmode", "verify-ca") => self.tls = TlsMode::VerifyCa,
            ("sslmode", "verify-full") => self.tls = TlsMode::VerifyFull,
            ("sslrootcert", _) => self.root_cert = Some(absolute(value)),
            ("sslcert", _) => self.client_cert = Some(absolute(value)),
            ("sslkey", _) => self.client_key = Some(absolute(value)),
            ("channel_binding", "disable") => self.channel_binding = ChannelBinding::Disable,
            ("channel_binding", "prefer") => self.channel_binding = ChannelBinding::Prefer,
            ("channel_binding", "require") => self.channel_binding = ChannelBinding::Require,
            // Of several servers, the one that takes writes is used in any case.
            ("target_session_attrs", "any" | "read-write" | "primary") => {}
            ("target_session_attrs", _) => {
                let text =
                    format!("target_session_attrs={value}: locks need the server that takes writes; write read-write");
                return Err(Invalid::new(text));
            }
            ("application_name", _) => value.clone_into(&mut self.application_name),
            ("connect_timeout", _) => {
                let seconds = value.parse().ok().filter(|seconds| (0..=3600).contains(seconds));
                let seconds = seconds.ok_or_else(|| {
                    Invalid::new(format!("connect_timeout= takes seconds from 0 to 3600, not {value:?}"))
                })?;
                self.connect = Some(Duration::from_secs(seconds)).filter(|limit| !limit.is_zero());
            }
            ("password_file", _) => self.password_file = Some(absolute(value)),
            ("host", _) => place.host = some(value.to_owned()),
            ("port", _) => place.port = Some(port(value)?),
            ("user", _) => self.user = some(value.to_owned()),
            _ => {
                // The value of an unknown option may be a password.
                let is_known = matches!(name, "create" | "sslmode" | "quarantine" | "channel_binding");
                let shown = if is_known { format!("{name}={value}") } else { name.to_owned() };
                return Err(Invalid::new(format!(
                    "{shown:?} is not an option of a postgres:// URL; supported: schema=NAME, create=true|false, timeout=MS, poll=MS, \
                     connections=N, quarantine=on|off, max_ttl=MS, sslmode=disable|prefer|require|verify-ca|verify-full, sslrootcert=FILE, sslcert=FILE, \
                     sslkey=FILE, channel_binding=disable|prefer|require, password_file=FILE, connect_timeout=S, application_name=NAME, \
                     target_session_attrs=read-write, host=DIR, port=N and user=NAME"
                )));
            }
        }
        Ok(())
    }

    /// The password for a server, if there is one. Files are read for each connection, because they may change. While that of the URL cannot
    /// be read, the password that was accepted last is used. Without one in the URL, it is that of the environment, as in libpq.
    pub(crate) fn password(&self, host: &Host) -> Result<Option<String>, String> {
        let Some(file) = &self.password_file else {
            let [given, ..] = &self.environment;
            return Ok(self.password.clone().or_else(|| given.clone()).or_else(|| self.passed_by_file(host)));
        };
        let failed = |why: io::Error| format!("password_file={}: {why}", file.display());
        match (first_line(file).map_err(failed), self.accepted()) {
            (Err(why), Some(last)) => {
                tracing::warn!("{why}; the password that was accepted last is used");
                Ok(Some(last))
            }
            (read, _) => read.map(Some),
        }
    }

    fn passed_by_file(&self, host: &Host) -> Option<String> {
        let [_, file, login] = &self.environment;
        let file = Path::new(file.as_ref()?);
        let is_private = is_private(file)?;
        if !is_private {
            tracing::warn!("{} is not used, because others may read it: chmod 0600 {0}", file.display());
            return None;
        }
        let text = contents(file, PGPASS_MAX).inspect_err(|why| tracing::warn!("{}: {why}", file.display())).ok()?;
        let (host, port) = match host {
            Host::Tcp(name, port) => (name.clone(), port.to_string()),
            Host::Unix(dir, port) if dir == default_dir() => ("localhost".to_owned(), port.to_string()),
            Host::Unix(dir, port) => (dir.display().to_string(), port.to_string()),
        };
        let user = self.user.as_ref().or(login.as_ref()).map_or("", String::as_str);
        let wanted = [&host, &port, self.database.as_deref().unwrap_or(user), user];
        text.lines().find_map(|line| password_in(line, wanted))
    }

    /// To be called after a login with this password.
    pub(crate) fn accept(&self, password: Option<String>) {
        if self.password_file.is_some() {
            *lock(&self.accepted) = password;
        }
    }

    /// The kind of a fault at a login. Where passwords are changed, the server is usually changed first and the file a moment later: if
    /// the server accepted a password of the file before, a retry helps.
    pub(crate) fn kind(&self, fault: Fault) -> Fault {
        if fault == Fault::Denied && self.accepted().is_some() { Fault::Revoked } else { fault }
    }

    fn accepted(&self) -> Option<String> {
        lock(&self.accepted).clone()
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

/// The text of a regular file: a pipe may block, and a device may have no end.
fn contents(file: &Path, max: u64) -> io::Result<String> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    if File::open(file)?.take(max + 1).read_to_string(&mut text)? as u64 > max {
        return Err(io::Error::other("longer than a password"));
    }
    Ok(text)
}

/// Whether only the owner may read a file; `None` if there is none.
fn is_private(file: &Path) -> Option<bool> {
    let found = std::fs::metadata(file).ok()?;
    #[cfg(unix)]
    return Some(std::os::unix::fs::PermissionsExt::mode(&found.permissions()).trailing_zeros() >= 6);
    #[cfg(not(unix))]
    Some(found.is_file())
}

/// The last field of a line of `.pgpass`, if the others are these, or `*`.
fn password_in(line: &str, wanted: [&str; 4]) -> Option<String> {
    let (mut fields, mut is_escaped) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            ':' if !is_escaped => fields.push(String::new()),
            _ => fields.last_mut()?.push(letter),
        }
        is_escaped = false;
    }
    let fits = |(field, wanted): (&String, &str)| field == "*" || field == wanted;
    let is_ours = !line.starts_with('#') && fields.iter().zip(wanted).all(fits);
    fields.into_iter().nth(wanted.len()).filter(|password| is_ours && !password.is_empty())
}

/// The first line of such a file.
fn first_line(file: &Path) -> io::Result<String> {
    let text = contents(file, PASSWORD_FILE_MAX)?;
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
        assert_eq!(target.password(&target.hosts[0]).unwrap().as_deref(), Some("p@ss"));
        assert_eq!(target.limit, Duration::from_secs(2));
        assert_eq!(target.quoted_schema(), "\"Locks\"");
        assert!(!format!("{target:?} {}", target.name).contains("ss@"));
        // An `@` in a login, a database, the name of a file or a socket.
        for at in ["user@server:p@h/a%40b", "h/d?password_file=/home/a@b/p", "/d?host=/run/a@b"] {
            assert!(Target::parse(&format!("postgresql://{at}")).is_ok(), "{at}");
        }
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
            ("postgres://h/d?channel_binding=maybe", "channel_binding=maybe"),
            ("postgres://h/d?target_session_attrs=read-only", "takes writes"),
            ("postgres://h/d?connect_timeout=x", "connect_timeout="),
            ("postgres://h/d?sslcert=/c.pem", "sslkey="),
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
        let target = Target::parse(&with("postgres:///d")).unwrap();
        assert_eq!(target.password(&target.hosts[0]).unwrap().as_deref(), Some("a/b"));
    }

    #[test]
    fn options_of_libpq_mean_the_same() {
        let url = "postgres://h/d?sslmode=require&sslrootcert=/ca.pem&sslcert=/c.pem&sslkey=/c.key&channel_binding=require&\
                   target_session_attrs=read-write&application_name=orders&connect_timeout=10";
        let target = Target::parse(url).unwrap();
        assert_eq!((target.tls, target.channel_binding), (TlsMode::VerifyCa, ChannelBinding::Require));
        assert_eq!((target.client_cert, target.client_key), (Some("/c.pem".into()), Some("/c.key".into())));
        assert_eq!((&*target.application_name, target.connect), ("orders", Some(Duration::from_secs(10))));
        assert_eq!(target.name, "postgres://h:5432/d");
    }

    #[test]
    #[cfg(unix)]
    fn a_url_without_a_password_gets_that_of_the_environment() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".pgpass");
        let text = "# a comment\nh:5432:d:other:no\nh:7:d:me:no\nh:5432:other:me:no\n\\:\\::*:*:me:in\\:six\n\
                    localhost:*:d:me:socket\nh:*:d:me:a\\:b\\\\c:rest\n*:*:*:you:last\n";
        std::fs::write(&file, text).unwrap();
        let allow = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let asked = |url: &str, variables: &[(&str, &str)]| {
            let variable =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let target = Target::parse_in(url, variable).unwrap();
            target.password(&target.hosts[0]).unwrap()
        };
        let (home, passfile) = (("HOME", dir.path().to_str().unwrap()), ("PGPASSFILE", file.to_str().unwrap()));
        allow(0o600);
        for (url, variables, expected) in [
            ("postgres://me@h/d", &[home][..], Some("a:b\\c")),
            ("postgres://h/d", &[passfile, ("USER", "me")], Some("a:b\\c")),
            ("postgres://me@[::]/d", &[home], Some("in:six")),
            ("postgres:///d?user=me", &[home], Some("socket")),
            ("postgres://you@h/x", &[home, ("PGPASSFILE", "/nowhere")], None),
            ("postgres://you@x", &[home], Some("last")),
            ("postgres://me@h/x", &[home], None),
            ("postgres://me@h/d", &[home, ("PGPASSWORD", "given")], Some("given")),
            ("postgres://me:own@h/d", &[home, ("PGPASSWORD", "given")], Some("own")),
        ] {
            assert_eq!(asked(url, variables).as_deref(), expected, "{url} {variables:?}");
        }
        allow(0o640);
        assert_eq!(asked("postgres://me@h/d", &[home]), None);
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
