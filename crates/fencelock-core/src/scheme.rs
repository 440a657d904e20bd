use crate::{Backend, BoxFuture, ConnectError, Invalid, RegisteredNode};
use std::fmt::Debug;
use std::sync::Arc;

/// A new backend, or an error.
pub type Connecting<'a> = BoxFuture<'a, Result<Arc<dyn Backend>, ConnectError>>;

/// The servers that were set up, or an error.
pub type Registering<'a> = BoxFuture<'a, Result<Vec<RegisteredNode>, ConnectError>>;

/// A URL scheme and its functions. `fencelock::register` adds one to this process.
///
/// Only [`Scheme::forms`] and [`Scheme::connect`] are required.
pub trait Scheme: Debug + Send + Sync + 'static {
    /// The forms of its URLs. The text before the colon of a form is the name of the scheme.
    fn forms(&self) -> &[UrlForm];

    /// Connects to the backend of this URL, and checks it: a wrong address or password is an error here.
    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a>;

    /// Connects without a check, for commands that diagnose a backend which may be unavailable.
    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        self.connect(url)
    }

    /// Connects for commands that wait: an unavailable server is connected to, and checked, with the first claim.
    fn on_demand<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        self.lazy(url)
    }

    /// Whether other processes with the same URL share the locks.
    fn cross_process(&self) -> bool {
        true
    }

    /// The backend of this URL, called `name`, for comparisons: equal for URLs that lock the same keys, and without a password. A
    /// program that runs under a lock uses it to refuse to wait for the same one.
    fn identity(&self, url: &str, name: &str) -> String {
        let _ = url;
        name.to_owned()
    }

    /// Sets up the servers of this URL, for `fencelock init`. A scheme without a quarantine refuses.
    fn init<'a>(&'a self, url: &'a str, trust_empty: bool) -> Registering<'a> {
        let _ = trust_empty;
        Box::pin(async { Err(refused(url, "has no quarantine, so there is nothing to set up").into()) })
    }

    /// The URL with this password for every server that has none: for a password that is given beside the URL.
    ///
    /// # Errors
    /// [`Invalid`] for an invalid URL, and if the scheme takes no password beside its URLs.
    fn with_password(&self, url: &str, password: &str) -> Result<String, Invalid> {
        let _ = password;
        Err(refused(url, "takes no password beside its URL"))
    }
}

fn refused(url: &str, why: &str) -> Invalid {
    Invalid::new(format!("{}: {why}", url.split_once(':').map_or(url, |(scheme, _)| scheme)))
}

/// Parses a URL that may have a login before its hosts. An `@` that is left in the hosts or in a path behind them is refused: it shows
/// that a password has a character that is not escaped, and its rest would be looked up as a host, and shown. A query may have an `@`,
/// but then its errors may be about a password, and are not shown.
///
/// # Errors
/// [`Invalid`] without a part of the URL but its scheme, and that of `parse`.
pub fn parse_url<T>(url: &str, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> Result<T, Invalid> {
    let (scheme, rest) = url.split_once("://").unwrap_or((url.split(':').next().unwrap_or_default(), ""));
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = address.split_at(address.find(['/', '#']).unwrap_or(address.len()));
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let refused = || {
        Invalid::new(format!(
            "{scheme}://: an @ is left after the login: in a user, a password or a path, write @ : / # ? as %40 %3A %2F %23 %3F"
        ))
    };
    if hosts.contains("%40") || !hosts.is_empty() && path.contains('@') {
        return Err(refused());
    }
    parse(url).map_err(|error| if query.contains('@') { refused() } else { error })
}

/// A form of the URLs of a scheme, for errors and help texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UrlForm {
    /// The form, with placeholders in capitals: `redis://HOST[:PORT][/DB]`.
    pub url: &'static str,
    /// The use of the scheme, in half a line.
    pub about: &'static str,
}

impl UrlForm {
    /// `url` must contain a colon.
    pub const fn new(url: &'static str, about: &'static str) -> Self {
        Self { url, about }
    }

    /// The text before the colon.
    pub fn scheme(&self) -> &'static str {
        self.url.split_once(':').map_or(self.url, |(scheme, _)| scheme)
    }
}
