use fencelock::backends::Redis;
use fencelock_conformance::{Fixture, FixtureFactory, Foreign};
use fencelock_core::{Backend, BoxFuture, QuorumNode};
use fencelock_testkit::{RedisForeign, RedisServer, StartError};
use std::sync::{Arc, Mutex, PoisonError};

/// All cases of a factory share one server; each backend has its own connection. `options` are appended to the URL.
pub(crate) fn factory(name: &'static str, options: &'static str) -> FixtureFactory {
    of_servers(name, options, false)
}

/// The server has a replica.
pub(crate) fn with_a_replica(name: &'static str, options: &'static str) -> FixtureFactory {
    of_servers(name, options, true)
}

fn of_servers(name: &'static str, options: &'static str, replica: bool) -> FixtureFactory {
    let server: Mutex<Option<Arc<Servers>>> = Mutex::default();
    FixtureFactory::new(name, move || {
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let server = match &*server {
            Some(server) => Arc::clone(server),
            None => Arc::clone(server.insert(Arc::new(Servers::start(replica).map_err(StartError::reason_to_skip)?))),
        };
        let (url, foreign) = (format!("{}{options}", server.master.url()), server.master.foreign());
        Ok(Box::new(OnRedis { _servers: server, url, foreign }))
    })
}

struct Servers {
    master: RedisServer,
    _replica: Option<RedisServer>,
}

impl Servers {
    fn start(with_replica: bool) -> Result<Self, StartError> {
        let (master, mut replica) = (RedisServer::start()?, None);
        if with_replica {
            let server = replica.insert(RedisServer::start()?);
            server.follow(master.port());
        }
        Ok(Self { master, _replica: replica })
    }
}

struct OnRedis {
    _servers: Arc<Servers>,
    url: String,
    foreign: RedisForeign,
}

impl OnRedis {
    async fn client(&self) -> Redis {
        Redis::open(&self.url).await.expect("a server to connect to")
    }
}

impl Fixture for OnRedis {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(self.client().await) as _ })
    }

    fn node(&self) -> Result<BoxFuture<'_, Arc<dyn QuorumNode>>, &'static str> {
        Ok(Box::pin(async { Arc::new(self.client().await) as _ }))
    }

    fn foreign(&self) -> Result<&dyn Foreign, &'static str> {
        Ok(&self.foreign)
    }
}
