use super::tls::TlsFiles;
use super::wall_clock::WallClock;
use crate::{RedisServer, StartError};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Options of a [`RedisServer`].
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) password: Option<String>,
    pub(super) tls: bool,
    /// After this time without an answer, the other nodes of the cluster consider it to be down.
    pub(super) cluster_node_timeout: Option<Duration>,
}

impl RedisOptions {
    /// Adds arguments of `redis-server`; later arguments override earlier ones and the defaults.
    ///
    /// An ACL user is also an argument: `["--user", "app", "on", ">secret", "~*", "&*", "+@all"]`.
    #[must_use]
    pub fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.args.extend(args.into_iter().map(str::to_owned));
        self
    }

    /// Sets an environment variable, which restarts keep.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Uses this wall clock.
    #[must_use]
    pub fn wall_clock(self, clock: &WallClock) -> Self {
        clock.env().into_iter().fold(self, |options, (name, value)| options.env(name, value))
    }

    /// Sets `requirepass`.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Adds a second port for TLS, with a certificate for `localhost` and `127.0.0.1`.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Becomes a node of a cluster, which it has yet to join.
    #[must_use]
    pub(super) fn cluster_node(mut self, timeout: Duration) -> Self {
        self.cluster_node_timeout = Some(timeout);
        self
    }

    /// Starts the server, and waits until it answers.
    pub fn start(self) -> Result<RedisServer, StartError> {
        RedisServer::start_with(self)
    }

    pub(super) fn command_line(&self, port: u16, tls: Option<(u16, &TlsFiles)>, dir: &Path) -> Vec<OsString> {
        let mut line: Vec<OsString> = Vec::new();
        line.extend(["--port", &port.to_string(), "--bind", "127.0.0.1"].map(OsString::from));
        line.extend(["--save", "", "--appendonly", "no", "--daemonize", "no", "--dir"].map(OsString::from));
        line.push(dir.into());
        if let Some(password) = &self.password {
            line.extend(["--requirepass", password].map(OsString::from));
        }
        if let Some(timeout) = self.cluster_node_timeout {
            line.extend(["--cluster-enabled", "yes", "--cluster-node-timeout"].map(OsString::from));
            line.push(timeout.as_millis().to_string().into());
            // A replica takes over however old its data is, and copies its master at once.
            line.extend(
                ["--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"].map(OsString::from),
            );
        }
        if let Some((port, files)) = tls {
            line.extend(["--tls-port", &port.to_string(), "--tls-auth-clients", "no"].map(OsString::from));
            for (name, file) in [("cert", &files.certificate), ("key", &files.key), ("ca-cert", &files.ca)] {
                line.push(format!("--tls-{name}-file").into());
                line.push(file.into());
            }
        }
        line.extend(self.args.iter().map(OsString::from));
        line
    }
}
