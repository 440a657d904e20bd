use super::Quorum;
use crate::server::Redis;
use crate::server::node_setup::{members, register, targets};
use crate::url::identity::{identity, in_order};
use crate::url::options::{DEFAULT_TIMEOUT, millis};
use crate::url::password;
use fencelock_core::{Backend, Connecting, Invalid, Registering, Scheme, UrlForm};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// The schemes of a quorum, and those of its nodes.
pub(crate) const SCHEMES: [(&str, &str); 2] = [("redlock", "redis"), ("redlock+tls", "rediss")];
/// The option that only quorum URLs have.
const NODE_TIMEOUT: &str = "node_timeout";
/// The option of a node that limits each request.
const TIMEOUT: &str = "timeout";

/// `redlock://` and `redlock+tls://`.
#[derive(Debug)]
pub struct QuorumScheme;

impl Scheme for QuorumScheme {
    fn forms(&self) -> &[UrlForm] {
        const {
            &[
                UrlForm::new("redlock://HOST,HOST,HOST", "machines that share a majority of Redis servers"),
                UrlForm::new("redlock+tls://HOST,...", "the same over TLS"),
            ]
        }
    }

    /// The options of a URL are those of each node's `redis://` or `rediss://` URL, and `node_timeout=MS`: [`Quorum::node_timeout`].
    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let quorum = Quorum::connect(&node_urls(url)?).await?;
            Ok(Arc::new(with_node_timeout(quorum, url)?) as _)
        })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(lazy(url)?.0) as _) })
    }

    /// The checks of [`Scheme::connect`] are made before the first claim or inspection.
    fn on_demand<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let (mut quorum, nodes) = lazy(url)?;
            quorum.startup_check = Some((nodes, OnceCell::new()));
            Ok(Arc::new(quorum) as _)
        })
    }

    fn identity(&self, url: &str, name: &str) -> String {
        identity(url, &in_order(name))
    }

    fn init<'a>(&'a self, url: &'a str, trust_empty: bool) -> Registering<'a> {
        Box::pin(async move { register(targets(&node_urls(url)?)?, trust_empty).await })
    }

    fn with_password(&self, url: &str, password: &str) -> Result<String, Invalid> {
        Ok(password::for_each(url, password))
    }
}

/// The nodes without a connection, alone and as a quorum.
fn lazy(url: &str) -> Result<(Quorum, Vec<Arc<Redis>>), Invalid> {
    let nodes: Vec<Arc<Redis>> = members(&node_urls(url)?)?.into_iter().map(Arc::new).collect();
    Ok((with_node_timeout(of_nodes(nodes.iter().cloned())?, url)?, nodes))
}

/// Applies the `node_timeout=` of this URL.
fn with_node_timeout(quorum: Quorum, url: &str) -> Result<Quorum, Invalid> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    match value_of(NODE_TIMEOUT, query) {
        Some(text) => quorum.node_timeout(millis(NODE_TIMEOUT, text)?),
        None => Ok(quorum),
    }
}

fn value_of<'a>(name: &str, query: &'a str) -> Option<&'a str> {
    let mut pairs = query.split(['?', '&']).map(|option| option.split_once('=').unwrap_or((option, "")));
    pairs.find(|(option, _)| *option == name).map(|(_, value)| value)
}

/// The `timeout=` of each node, if the options name none and the default would end a request before `node_timeout=` does.
fn timeout_of_nodes(options: &str) -> Result<Option<Duration>, Invalid> {
    let Some(text) = value_of(NODE_TIMEOUT, options) else { return Ok(None) };
    let shortest = millis(NODE_TIMEOUT, text)?;
    let Some(text) = value_of(TIMEOUT, options) else {
        return Ok(Some(shortest).filter(|span| *span > DEFAULT_TIMEOUT));
    };
    if millis(TIMEOUT, text)? < shortest {
        return Err(Invalid::new(
            "timeout= is less than node_timeout=, so no request would wait that long; increase timeout=, or omit it",
        ));
    }
    Ok(None)
}

pub(super) fn of_nodes(nodes: impl Iterator<Item = Arc<Redis>>) -> Result<Quorum, Invalid> {
    let nodes: Vec<_> = nodes.map(|node| node as Arc<dyn Backend>).collect();
    if nodes.len() == 2 {
        tracing::warn!(
            "two nodes tolerate no failure: if either is unavailable, no lock can be acquired; use three or five"
        );
    }
    Quorum::trusting_empty(nodes)
}

/// One `redis://` or `rediss://` URL for each node. Its errors do not contain the URL, which may include passwords.
pub(crate) fn node_urls(url: &str) -> Result<Vec<String>, Invalid> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (_, scheme) = SCHEMES.into_iter().find(|(of_quorum, _)| *of_quorum == scheme).ok_or_else(without_names)?;
    let (list, options) = rest.split_once('?').unwrap_or((rest, ""));
    let is_of_quorum = |option: &&str| option.split('=').next() == Some(NODE_TIMEOUT);
    let timeout = timeout_of_nodes(options)?.map(|span| format!("{TIMEOUT}={}", span.as_millis()));
    let of_nodes = options.split(['?', '&']).filter(|option| !is_of_quorum(option));
    let options = of_nodes.chain(timeout.as_deref()).filter(|option| !option.is_empty()).collect::<Vec<_>>().join("&");
    let query = if options.is_empty() { String::new() } else { format!("?{options}") };
    if query.split(['?', '&']).any(|option| option.starts_with("acks=") || option.starts_with("acks_timeout=")) {
        return Err(Invalid::new(
            "acks= is for one Redis with replicas. The nodes of redlock:// have none: data that one of them loses is still on the others",
        ));
    }
    let mut urls = Vec::new();
    for node in list.split(',') {
        let host = node.rsplit_once('@').map_or(node, |(_, host)| host).trim_end_matches('/');
        if host.is_empty() {
            return Err(without_names());
        }
        urls.push(format!("{scheme}://{node}{query}"));
    }
    Ok(urls)
}

fn without_names() -> Invalid {
    Invalid::new(
        "a quorum names its nodes like this: redlock://one:6379,two:6379,three:6379, or redlock+tls://one,two,three for TLS",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::Backend;

    fn lazily(rest: &str) -> Result<Quorum, String> {
        lazy(&format!("redlock://{rest}")).map(|(quorum, _)| quorum).map_err(|error| error.to_string())
    }

    #[test]
    fn node_timeout_is_an_option_of_the_quorum_with_bounds() {
        let urls = node_urls("redlock://a,b?prefix=x&node_timeout=500&max_ttl=50").unwrap();
        assert_eq!(urls, ["redis://a?prefix=x&max_ttl=50", "redis://b?prefix=x&max_ttl=50"]);
        assert_eq!(node_urls("redlock://a?node_timeout=500").unwrap(), ["redis://a"]);
        let quorum = lazily("a,b,c?node_timeout=500").unwrap();
        assert!(quorum.nodes.iter().all(|node| node.limit(Duration::ZERO) == Duration::from_millis(500)));
        assert!(lazily("a,b,c").unwrap().nodes[0].limit(Duration::ZERO) < Duration::from_millis(500));
        for refused in ["0", "60001", "-1", "1s", ""] {
            assert!(lazily(&format!("a,b,c?node_timeout={refused}")).is_err(), "{refused}");
        }
        assert!(lazily("a,b,c?node_timeout").is_err());
    }

    #[test]
    fn no_node_ends_a_request_before_node_timeout() {
        assert_eq!(node_urls("redlock://a?node_timeout=1001").unwrap(), ["redis://a?timeout=1001"]);
        assert_eq!(node_urls("redlock://a?prefix=x&node_timeout=5000").unwrap(), ["redis://a?prefix=x&timeout=5000"]);
        assert_eq!(node_urls("redlock://a?timeout=300&node_timeout=300").unwrap(), ["redis://a?timeout=300"]);
        let refused = lazily("a,b,c?node_timeout=300&timeout=299").unwrap_err();
        assert!(refused.contains("increase timeout="), "{refused}");
    }

    #[test]
    fn options_apply_to_every_node_and_credentials_to_one() {
        let urls = node_urls("redlock://a:1,u:p@b,[::1]:7?prefix=x%3A&max_ttl=50").unwrap();
        let options = "?prefix=x%3A&max_ttl=50";
        assert_eq!(urls, ["a:1", "u:p@b", "[::1]:7"].map(|node| format!("redis://{node}{options}")));
    }

    #[test]
    fn tls_applies_to_all_nodes() {
        let urls = node_urls("redlock+tls://a:1,u:p@b?ca=/x").unwrap();
        assert_eq!(urls, ["a:1", "u:p@b"].map(|node| format!("rediss://{node}?ca=/x")));
        assert_eq!(lazy("redlock+tls://a,b,c").unwrap().0.name(), "redlock+tls://a:6379,b:6379,c:6379");
        for url in ["redlock+tls:a,b", "redlock+ssl://a,b,c", "redlock://rediss://a,b"] {
            assert!(lazy(url).is_err(), "{url}");
        }
    }

    #[test]
    fn the_longest_ttl_is_a_minute_by_default() {
        let longest = |rest| lazily(rest).unwrap().capabilities().longest_ttl;
        assert_eq!(longest("a,b,c"), Some(Duration::from_secs(60)));
        assert_eq!(longest("a,b,c?max_ttl=5000"), Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_quorum_without_a_quarantine_is_rejected() {
        assert!(lazily("a,b,c?quarantine=on").is_ok());
        assert!(lazily("a,b,c?quarantine=off").unwrap_err().contains("trust_empty=true"));
    }

    #[test]
    fn nodes_with_different_quarantines_are_rejected() {
        let urls = ["redis://a?max_ttl=5000", "redis://b"].map(str::to_owned);
        assert!(members(&urls).unwrap_err().to_string().contains("max_ttl="));
    }

    #[test]
    fn a_server_listed_twice_is_rejected_without_its_password() {
        for rest in ["a,b,a", "a,b,A:6379", "u:s3cret@a,b,a:6379", "[::1],[::1]:6379", "a/,a"] {
            let error = lazily(rest).unwrap_err();
            assert!(error.contains("twice") && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn acks_is_rejected_for_a_quorum() {
        for option in ["acks=1", "acks=0", "acks_timeout=50"] {
            assert!(lazily(&format!("a,b,c?{option}")).unwrap_err().contains("still on the others"), "{option}");
        }
    }

    #[test]
    fn a_node_without_a_host_is_rejected() {
        for rest in ["", "a,,b", "a,"] {
            assert!(lazily(rest).unwrap_err().contains("one:6379"), "{rest}");
        }
    }
}
