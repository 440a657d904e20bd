use crate::quorum::node_urls;
use crate::{Cluster, ClusterScheme, QuorumScheme, RedisScheme, Server};
use fencelock_core::{Invalid, Scheme};

/// The servers that a URL names; none if it is not a URL of this crate. The masters of a cluster, and that of sentinels, are asked for;
/// this blocks.
///
/// # Errors
/// [`Invalid`] for a URL that cannot be used, and if the servers cannot be found.
pub fn servers(url: &str) -> Result<Vec<Server>, Invalid> {
    let name = url.split_once(':').map_or(url, |(name, _)| name);
    let is = |scheme: &dyn Scheme| scheme.forms().iter().any(|form| form.scheme() == name);
    if is(&RedisScheme) {
        Ok(vec![Server::alone(url)?])
    } else if is(&ClusterScheme) {
        Cluster::servers(url)
    } else if is(&QuorumScheme) {
        Server::of_set(&node_urls(url)?)
    } else {
        Ok(Vec::new())
    }
}
