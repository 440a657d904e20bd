//! `redis+cluster://[user:password@]host[:port],...`.

use crate::url::hosts::{Address, listed, shown};
use crate::url::options::Role;
use crate::url::target::Target;
use fencelock_core::{Invalid, parse_url};

const PORT: u16 = 6379;
/// More than any deployment lists: each node returns the others.
const HOSTS_MAX: usize = 100;

/// The content of a URL.
#[derive(Debug)]
pub(crate) struct ClusterUrl {
    /// The URL without credentials and options.
    pub(crate) name: String,
    /// The nodes that are queried first.
    pub(crate) seeds: Vec<Address>,
    /// The options, and the credentials of all nodes.
    pub(crate) target: Target,
}

impl ClusterUrl {
    /// Errors do not contain the URL, which may include a password.
    pub(crate) fn parse(url: &str) -> Result<Self, Invalid> {
        parse_url(url, Self::of)
    }

    fn of(url: &str) -> Result<Self, Invalid> {
        let (base, query) =
            url.split_once('?').map_or((url, String::new()), |(base, query)| (base, format!("?{query}")));
        let (scheme, rest) = match base.split_once("://") {
            Some(("redis+cluster", rest)) => ("redis", rest),
            Some(("rediss+cluster", rest)) => ("rediss", rest),
            _ => return Err(form()),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() {
            return Err(Invalid::new("a cluster has one database, 0: redis+cluster:// takes no path"));
        }
        let (login, seeds) = listed(authority, PORT, ("node", HOSTS_MAX, ""), form)?;
        let first = format!("{scheme}://{login}{}/{query}", shown(&seeds[0]));
        let target = Target::parse_as(Role::ClusterNode, &first)?;
        let hosts: Vec<_> = seeds.iter().map(shown).collect();
        Ok(Self { name: format!("{scheme}+cluster://{}", hosts.join(",")), seeds, target })
    }

    /// The same cluster for releases only.
    pub(crate) fn for_releases(&self) -> Self {
        Self { name: self.name.clone(), seeds: self.seeds.clone(), target: self.target.for_releases() }
    }
}

fn form() -> Invalid {
    Invalid::new(
        "a URL of a cluster names some of its nodes, like this: redis+cluster://one:6379,two:6379,three:6379; in a user or a password, \
         write @ : / # ? as %40 %3A %2F %23 %3F",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_nodes_and_options() {
        let url = ClusterUrl::parse("redis+cluster://u:p%2F@N1,n2:7,[::1]?prefix=x&timeout=50").unwrap();
        assert_eq!(url.name, "redis+cluster://n1:6379,n2:7,[::1]:6379");
        assert_eq!(url.seeds, [("n1", 6379), ("n2", 7), ("::1", 6379)].map(|(host, port)| (host.to_owned(), port)));
        assert_eq!((url.target.prefix.as_str(), url.target.limit.as_millis()), ("x", 50));
        let node = url.target.node_of(&std::sync::Arc::default(), &url.seeds[2]).unwrap();
        assert_eq!(node.name, "redis://[::1]:6379");
        assert_eq!(node.client.get_connection_info().redis_settings().password(), Some("p/"));
        assert_eq!(ClusterUrl::parse("rediss+cluster://a/").unwrap().name, "rediss+cluster://a:6379");
    }

    #[test]
    fn what_a_cluster_does_not_have_is_refused() {
        for (url, why) in [
            ("redis+cluster://a/1", "database"),
            ("redis+cluster://a,b,A", "twice"),
            ("redis+cluster://a?quarantine=on", "redlock://"),
            ("redis+cluster://a?max_ttl=1000", "redlock://"),
            ("redis+cluster://a?sentinel_user=x", "redis+sentinel://"),
            ("redis+cluster://", "like this"),
            ("redis+cluster://a,,b", "like this"),
            ("redis+cluster://u:s3cret@", "like this"),
            ("redis+cluster://u:s3@cret:x@a:x", "like this"),
            ("redis+cluster://u:s3cret@a?x=1", "not an option"),
        ] {
            let error = ClusterUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("s3"), "{url}: {error}");
        }
        assert!(ClusterUrl::parse("redis+cluster://a?quarantine=off").is_ok());
    }
}
