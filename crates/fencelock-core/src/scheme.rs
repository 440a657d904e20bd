use crate::{Backend, BoxFuture, ConnectError, Invalid, RegisteredNode};
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

/// A new backend, or why there is none.
pub type Connecting<'a> = BoxFuture<'a, Result<Arc<dyn Backend>, ConnectError>>;

/// Everything that is needed to name a kind of place in a URL. `fencelock::register` adds one to a process.
///
/// Only [`Scheme::forms`] and [`Scheme::connect`] are required. The other methods are for commands: `doctor` and `wait` connect
/// without a check, `init` puts servers into service, `bench` wants keys of its own, and help texts show the forms.
pub trait Scheme: Debug + Send + Sync + 'static {
    /// The forms of its URLs. What stands before the colon of a form is the name of a scheme.
    fn forms(&self) -> &[UrlForm];

    /// Connects to the place of this URL, and checks it: a wrong address or password is an error here.
    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a>;

    /// The same without a check, for commands that diagnose a place which may not answer.
    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        self.connect(url)
    }

    /// The same for those who wait: a server that is away is connected to, and checked, with the first claim.
    fn on_demand<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        self.lazy(url)
    }

    /// Puts the servers of this URL into service, for `fencelock init`.
    fn init<'a>(&'a self, url: &'a str, trust_empty: bool) -> BoxFuture<'a, Result<Vec<RegisteredNode>, ConnectError>> {
        let _ = trust_empty;
        Box::pin(async move {
            let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
            Err(Invalid::new(format!(
                "{scheme}: has no quarantine, so there is nothing to set up: init is for redlock:// and for redis:// with \
                 quarantine=on"
            ))
            .into())
        })
    }

    /// Whether other processes that name the same URL have the same locks.
    fn cross_process(&self) -> bool {
        true
    }

    /// Where the load generator may leave keys, for a run of this name.
    ///
    /// # Errors
    /// [`Invalid`] for a URL that cannot be used.
    fn bench(&self, url: &str, run: &str) -> Result<BenchSite, Invalid> {
        let _ = run;
        Ok(BenchSite::new(url))
    }
}

/// One form of the URLs of a scheme, for errors and help texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UrlForm {
    /// With names in capitals for what is to be filled in: `redis://HOST[:PORT][/DB]`.
    pub url: &'static str,
    /// For whom, in half a line.
    pub about: &'static str,
}

impl UrlForm {
    /// `url` has a colon.
    pub const fn new(url: &'static str, about: &'static str) -> Self {
        Self { url, about }
    }

    /// What stands before its colon.
    pub fn scheme(&self) -> &'static str {
        self.url.split_once(':').map_or(self.url, |(scheme, _)| scheme)
    }
}

/// What one run of the load generator uses, and removes when it ends.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BenchSite {
    /// Where the worker processes connect to.
    pub url: String,
    /// A directory that belongs to this run alone.
    pub directory: Option<PathBuf>,
    /// URLs of the Redis servers on which the keys of the run are deleted: `redis://` or `redlock://`.
    pub servers: Vec<String>,
}

impl BenchSite {
    /// The keys of this URL; nothing is left of them when nobody holds them.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), directory: None, servers: Vec::new() }
    }

    /// The same in a directory that belongs to this run alone.
    #[must_use]
    pub fn with_directory(mut self, directory: PathBuf) -> Self {
        self.directory = Some(directory);
        self
    }

    /// The same with keys that stay on the servers of these URLs until they are deleted.
    #[must_use]
    pub fn with_servers(mut self, servers: Vec<String>) -> Self {
        self.servers = servers;
        self
    }
}
