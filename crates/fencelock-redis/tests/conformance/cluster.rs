use crate::TIMEOUT;
use fencelock::backends::connect;
use fencelock_conformance::{Fixture, FixtureFactory, Foreign, ForeignAttempt};
use fencelock_core::{Backend, BoxFuture, Key};
use fencelock_testkit::{ClusterNodes, RedisForeign, RedisServer, StartError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// All cases share a cluster of three masters. Their keys are in slots of all of them.
pub(crate) fn factory(name: &'static str, options: &'static str) -> FixtureFactory {
    let cluster: Mutex<Option<Arc<ClusterNodes>>> = Mutex::default();
    FixtureFactory::new(name, move || {
        let mut cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = if let Some(nodes) = &*cluster {
            Arc::clone(nodes)
        } else {
            let started = ClusterNodes::start(&RedisServer::options(), 3, 0);
            Arc::clone(cluster.insert(Arc::new(started.map_err(StartError::reason_to_skip)?)))
        };
        let foreign = nodes.nodes.iter().map(RedisServer::foreign).collect();
        Ok(Box::new(OnCluster { url: nodes.url(&format!("timeout={TIMEOUT}{options}")), nodes, foreign }))
    })
}

struct OnCluster {
    nodes: Arc<ClusterNodes>,
    url: String,
    foreign: Vec<RedisForeign>,
}

impl OnCluster {
    fn at_owner(&self, key: &Key) -> &RedisForeign {
        &self.foreign[self.nodes.owner_of(self.nodes.slot_of(key.as_str()))]
    }
}

impl Fixture for OnCluster {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { connect(&self.url).await.expect("a cluster to connect to") })
    }

    fn foreign(&self) -> Result<&dyn Foreign, &'static str> {
        Ok(self)
    }
}

impl Foreign for OnCluster {
    fn take<'a>(&'a self, key: &'a Key, value: &'a str, ttl: Option<Duration>) -> BoxFuture<'a, ForeignAttempt> {
        self.at_owner(key).take(key, value, ttl)
    }

    fn put_foreign_value<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, ()> {
        self.at_owner(key).put_foreign_value(key)
    }

    fn delete<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, ()> {
        self.at_owner(key).delete(key)
    }
}
