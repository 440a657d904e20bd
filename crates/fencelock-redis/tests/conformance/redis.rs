use fencelock::backends::Redis;
use fencelock_conformance::{Fixture, FixtureFactory, Foreign};
use fencelock_core::{Backend, BoxFuture, QuorumNode};
use fencelock_testkit::{RedisForeign, RedisServer, Sentinels, StartError};
use std::sync::{Arc, Mutex, PoisonError};

/// All cases of a factory share one server; each backend has its own connection. `options` are appended to the URL.
pub(crate) fn factory(name: &'static str, options: &'static str) -> FixtureFactory {
    of_servers(name, options, Servers::alone)
}

/// The server has a replica.
pub(crate) fn with_a_replica(name: &'static str, options: &'static str) -> FixtureFactory {
    of_servers(name, options, Servers::with_a_replica)
}

/// The server has replicas and sentinels, which name it.
pub(crate) fn with_sentinels(name: &'static str, options: &'static str) -> FixtureFactory {
    of_servers(name, options, Servers::with_sentinels)
}

fn of_servers(
    name: &'static str,
    options: &'static str,
    start: impl Fn() -> Result<Servers, StartError> + Send + Sync + 'static,
) -> FixtureFactory {
    let servers: Mutex<Option<Arc<Servers>>> = Mutex::default();
    FixtureFactory::new(name, move || {
        let mut servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
        let servers = match &*servers {
            Some(servers) => Arc::clone(servers),
            None => Arc::clone(servers.insert(Arc::new(start().map_err(StartError::reason_to_skip)?))),
        };
        let (url, foreign) = (format!("{}{options}", servers.url()), servers.master().foreign());
        Ok(Box::new(OnRedis { _servers: servers, url, foreign }))
    })
}

enum Servers {
    Alone(RedisServer),
    WithReplica(RedisServer, #[expect(dead_code, reason = "it runs as long as it lives")] Box<RedisServer>),
    WithSentinels(Sentinels),
}

impl Servers {
    fn alone() -> Result<Self, StartError> {
        Ok(Self::Alone(RedisServer::start()?))
    }

    fn with_a_replica() -> Result<Self, StartError> {
        let (master, replica) = (RedisServer::start()?, RedisServer::start()?);
        replica.follow(master.port());
        Ok(Self::WithReplica(master, Box::new(replica)))
    }

    fn with_sentinels() -> Result<Self, StartError> {
        let servers = (0..2).map(|_| RedisServer::start()).collect::<Result<_, _>>()?;
        let sentinels = Sentinels::of(servers).map_err(|error| StartError::Failed(error.to_string()))?;
        Ok(Self::WithSentinels(sentinels))
    }

    fn master(&self) -> &RedisServer {
        match self {
            Self::Alone(server) | Self::WithReplica(server, _) => server,
            Self::WithSentinels(sentinels) => &sentinels.servers[0],
        }
    }

    fn url(&self) -> String {
        match self {
            Self::WithSentinels(sentinels) => sentinels.url(""),
            _ => self.master().url(),
        }
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
