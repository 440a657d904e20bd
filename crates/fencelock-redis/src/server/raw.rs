use super::node_setup::targets;
use crate::cluster::map::masters;
use crate::cluster::slot_map::SlotMap;
use crate::scripts::script::SIDE;
use crate::scripts::side_key::SideKeys;
use crate::url::hosts::Address;
use crate::url::options::Role;
use crate::url::target::Target;
use fencelock_core::{Invalid, Key};

/// A Redis server that stores locks.
#[derive(Debug, Clone)]
pub struct Server {
    target: Target,
}

impl Server {
    /// The server of a `redis://` URL; of a `redis+sentinel://` URL, the current master, for which the sentinels are queried.
    pub(crate) fn alone(url: &str) -> Result<Self, Invalid> {
        let target = Target::parse_as(Role::Alone, url)?;
        let Some(sentinels) = &target.sentinels else { return Ok(Self { target }) };
        let master = target.at(&sentinels.query_blocking()?);
        Ok(Self { target: master.map_err(|error| Invalid::new(error.to_string()))? })
    }

    /// A node of a cluster.
    pub(crate) fn of_cluster(target: Target) -> Self {
        Self { target }
    }

    /// Whether it is a node of a cluster, which accepts only keys of one slot in a command, and only slots that it serves.
    pub fn is_cluster_node(&self) -> bool {
        self.target.cluster.is_some()
    }

    /// The masters of the cluster to which this node belongs, without a runtime.
    pub(crate) fn masters(&self) -> redis::RedisResult<Vec<Address>> {
        let mut connection = self.target.client.get_connection_with_timeout(self.target.limit)?;
        connection.set_read_timeout(Some(self.target.limit))?;
        let slots = redis::cmd("CLUSTER").arg("SLOTS").query(&mut connection)?;
        Ok(SlotMap::new(masters(slots, self.target.host())?).masters().into_iter().cloned().collect())
    }

    /// The servers of a set, one URL each.
    pub(crate) fn of_set(urls: &[String]) -> Result<Vec<Self>, Invalid> {
        Ok(targets(urls)?.into_iter().map(|target| Self { target }).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_seven_names_with_the_prefix_of_the_url() {
        let server = Server::alone("redis://h?prefix=p:").unwrap();
        let names = server.names(&Key::new("k").unwrap());
        let side =
            ["fence", "line", "waiters", "alive", "holds", "held"].map(|what| format!("fencelock:{{p:k}}:{what}"));
        assert_eq!(names, [&side[..], &["p:k".to_owned()]].concat());
    }
}
