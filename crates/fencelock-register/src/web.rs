//! What stores over HTTP have in common: their clients, the times that they tell, and the options of their URLs.

use fencelock_core::{Invalid, Key, RetryPlan};
use http::HeaderMap;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ConfigBuilder, WantsVerifier};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

pub(crate) type Connector = HttpsConnector<HttpConnector>;

/// A machine that does not answer is told from a slow store.
const CONNECT: Duration = Duration::from_secs(3);

pub(crate) fn tls() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
}

/// A client that sends each request once. Whether plain HTTP is allowed is checked with the URL. `name` is that in the certificate, if
/// it is another one; a connection is used again within `idle`.
pub(crate) fn client<B>(tls: ClientConfig, name: Option<ServerName<'static>>, idle: Duration) -> Client<Connector, B>
where
    B: hyper::body::Body + Send,
    B::Data: Send,
{
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = name {
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let mut client = Client::builder(TokioExecutor::new());
    client.retry_canceled_requests(false).pool_idle_timeout(idle).build(https.enable_http1().wrap_connector(tcp))
}

/// Whether the clients take this for an address. Of another one, one of them panics, and another one goes to the default port.
pub(crate) fn is_address(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok() && url::Url::parse(text).is_ok_and(|url| url.has_host())
}

/// The time of the store, in microseconds since 1970.
pub(crate) fn date(headers: &HeaderMap) -> Option<u64> {
    let date = headers.get(http::header::DATE)?.to_str().ok()?;
    let since = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    since.as_secs().checked_mul(1_000_000)
}

/// The hash that stands for a key whose name is too long for the store, or not allowed there.
pub(crate) fn hash(key: &Key) -> String {
    let hash = hmac_sha256::Hash::hash(key.as_str().as_bytes());
    hash.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The options of a URL, each with its value.
pub(crate) fn options(text: &str) -> impl Iterator<Item = Result<(&str, String), Invalid>> {
    text.split('&').filter(|option| !option.is_empty()).map(|option| {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        decoded(value).map(|value| (name, value))
    })
}

pub(crate) fn unknown_option(name: &str, known: &str) -> Invalid {
    Invalid::new(format!("unknown option {name:?}; the options are {known}"))
}

pub(crate) fn decoded(text: &str) -> Result<String, Invalid> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| Invalid::new("the URL is not UTF-8"))
}

/// `500ms`, `2s`.
pub(crate) fn span(name: &str, value: &str) -> Result<Duration, Invalid> {
    let unit = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number = value[..unit].parse().ok().filter(|number| *number <= 3_600_000);
    match (number, &value[unit..]) {
        (Some(number), "ms") => Ok(Duration::from_millis(number)),
        (Some(number), "s") if number <= 3600 => Ok(Duration::from_secs(number)),
        _ => Err(Invalid::new(format!("{name}={value}: write 500ms or 2s, up to an hour"))),
    }
}

/// The pauses of a waiter.
pub(crate) fn polls(longest: Duration) -> RetryPlan {
    RetryPlan::new(Duration::from_millis(100).min(longest), longest)
}
