use crate::TIMEOUT;
use crate::dead_node::DeadNode;
use fencelock::backends::{ManualClock, Memory, Quorum};
use fencelock_conformance::{Fixture, FixtureFactory};
use fencelock_core::{Backend, BoxFuture, Drift};
use fencelock_testkit::{RedisServer, StartError, redlock_url};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Three memory backends with a clock that the case controls.
pub(crate) fn of_memories() -> FixtureFactory {
    FixtureFactory::new("quorum_of_memories", || Ok(Box::new(Memories::new(3, 0))))
}

/// Five nodes, one of which is unreachable.
pub(crate) fn with_a_dead_node() -> FixtureFactory {
    FixtureFactory::new("quorum_with_a_dead_node", || Ok(Box::new(Memories::new(4, 1))))
}

struct Memories {
    clock: Arc<ManualClock>,
    dead: usize,
    nodes: Vec<Arc<dyn Backend>>,
}

impl Memories {
    fn new(alive: usize, dead: usize) -> Self {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(3600)));
        let mut nodes: Vec<Arc<dyn Backend>> = Vec::new();
        for number in 0..alive + dead {
            nodes.push(if number < dead {
                Arc::new(DeadNode)
            } else {
                Arc::new(Memory::with_leases(Arc::clone(&clock) as _))
            });
        }
        Self { clock, dead, nodes }
    }
}

impl Fixture for Memories {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async {
            let clock = Arc::clone(&self.clock) as _;
            let quorum = Quorum::with_clock(self.nodes.clone(), clock, Drift::default()).expect("nodes of one kind");
            Arc::new(quorum) as _
        })
    }

    fn let_time_pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(span);
        Box::pin(async {})
    }

    fn all_nodes_answer(&self) -> Result<(), &'static str> {
        if self.dead == 0 { Ok(()) } else { Err("a node is unreachable") }
    }
}

/// Three servers for all cases, initialized as in production: each has a marker that every claim checks. Each backend has
/// separate connections.
pub(crate) fn of_redis() -> FixtureFactory {
    let servers: Mutex<Vec<Arc<RedisServer>>> = Mutex::default();
    FixtureFactory::new("quorum_of_redis", move || {
        let mut servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
        while servers.len() < 3 {
            servers.push(Arc::new(RedisServer::start().map_err(StartError::reason_to_skip)?));
        }
        Ok(Box::new(OnServers(servers.clone())))
    })
}

struct OnServers(Vec<Arc<RedisServer>>);

impl Fixture for OnServers {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async {
            let options = format!("max_ttl=86400000&node_timeout={TIMEOUT}");
            let url = redlock_url(self.0.iter().map(Arc::as_ref), &options);
            fencelock::backends::init(&url, true).await.expect("initialized servers");
            fencelock::backends::connect(&url).await.expect("servers to connect to")
        })
    }
}
