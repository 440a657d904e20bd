use crate::quorum::node_urls;
use crate::scripts::script::SIDE;
use crate::scripts::side_key::SideKeys;
use crate::server::node_setup::targets;
use crate::url::target::Target;
use crate::{Cluster, ClusterScheme, QuorumScheme, RedisScheme};
use fencelock_core::{Invalid, Key, Scheme, Unknown};
use std::{io, thread};
use tokio::runtime::Builder;

/// A Redis server that stores locks.
#[derive(Debug, Clone)]
pub struct Server {
    target: Target,
}

impl Server {
    /// Whether it is a node of a cluster, which accepts only keys of one slot in a command, and only slots that it serves.
    pub fn is_cluster_node(&self) -> bool {
        self.target.cluster.is_some()
    }

    /// Its address, without a password.
    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// The driver's client for it, with all connection settings of the URL.
    pub fn client(&self) -> &redis::Client {
        &self.target.client
    }

    /// All keys that a lock may use: its own key on the server, and its side keys. Deleting them
    /// while the lock is in use breaks it.
    pub fn names(&self, key: &Key) -> Vec<String> {
        let redis_key = self.target.redis_key(key);
        let side = SideKeys::of(&redis_key);
        let mut names: Vec<_> = SIDE.iter().map(|what| side.name(what).to_string()).collect();
        names.push(redis_key.into_owned());
        names
    }
}

/// The servers that a URL names; none if it is not a URL of this crate. The masters of a cluster, and that of sentinels, are asked for;
/// this blocks.
///
/// # Errors
/// [`Invalid`] for a URL that cannot be used, and if the servers cannot be found.
pub fn servers(url: &str) -> Result<Vec<Server>, Invalid> {
    let name = url.split_once(':').map_or(url, |(name, _)| name);
    let is = |scheme: &dyn Scheme| scheme.forms().iter().any(|form| form.scheme() == name);
    let targets = if is(&RedisScheme) {
        let target = Target::parse(url)?;
        let Some(sentinels) = &target.sentinels else { return Ok(vec![Server { target }]) };
        let named = waited(sentinels.candidates(&target.name))?;
        let masters = named.iter().take(1).map(|master| target.at(&master.address));
        masters.collect::<Result<_, _>>().map_err(|error| Invalid::new(error.to_string()))?
    } else if is(&ClusterScheme) {
        let cluster = Cluster::lazy(url)?;
        waited(cluster.refresh())?;
        let masters = cluster.view.map().masters().into_iter();
        masters.map(|address| cluster.url.target.node_of(&cluster.view, &address)).collect::<Result<_, _>>()?
    } else if is(&QuorumScheme) {
        targets(&node_urls(url)?)?
    } else {
        Vec::new()
    };
    Ok(targets.into_iter().map(|target| Server { target }).collect())
}

/// Waits in a runtime of its own, on a thread of its own: the caller may have a runtime, which cannot wait.
fn waited<T: Send>(request: impl Future<Output = Result<T, Unknown>> + Send) -> Result<T, Invalid> {
    let failed = |error: io::Error| Invalid::new(error.to_string());
    let wait = || {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(request).map_err(|cause| Invalid::new(cause.to_string()))
    };
    thread::scope(|scope| scope.spawn(wait).join()).unwrap_or_else(|_| Err(Invalid::new("a thread has panicked")))
}
