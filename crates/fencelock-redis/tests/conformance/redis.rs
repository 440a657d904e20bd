use crate::TIMEOUT;
use fencelock::backends::Redis;
use fencelock_conformance::{Fixture, FixtureFactory, Foreign};
use fencelock_core::{Backend, BoxFuture, Claim, Holder, HolderId, Intent, Key, Owner, Ttl};
use fencelock_testkit::{RedisForeign, RedisServer, Sentinels, StartError};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

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
    let backends: Mutex<Option<Arc<TestBackend>>> = Mutex::default();
    FixtureFactory::new(name, move || {
        let mut backend = backends.lock().unwrap_or_else(PoisonError::into_inner);
        let backend = if let Some(backend) = &*backend {
            Arc::clone(backend)
        } else {
            let servers = start().map_err(StartError::reason_to_skip)?;
            Arc::clone(backend.insert(Arc::new(TestBackend { servers, in_service: OnceCell::new() })))
        };
        let (url, foreign) =
            (format!("{}?timeout={TIMEOUT}{options}", backend.servers.url()), backend.servers.master().foreign());
        Ok(Box::new(OnRedis { backend, url, foreign }))
    })
}

/// The servers of all cases of a factory.
struct TestBackend {
    servers: Servers,
    in_service: OnceCell<()>,
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
    backend: Arc<TestBackend>,
    url: String,
    foreign: RedisForeign,
}

impl OnRedis {
    async fn client(&self) -> Redis {
        let client = Redis::open(&self.url).await.expect("a server to connect to");
        self.backend.in_service.get_or_init(|| put_into_service(&client)).await;
        client
    }
}

/// A server with a quarantine is in service after its first claim. A case may begin with a read, which writes no marker.
async fn put_into_service(client: &Redis) {
    let holder = Holder { id: HolderId::from_bytes([7; 16]), owner: Owner::new("suite", 1, None).expect("valid") };
    let key = Key::new("put into service").expect("valid");
    let claim = Claim::new(key.clone(), holder.clone(), Ttl::default(), Intent::Try);
    client.acquire(&claim).await.answer.expect("a server that answers");
    client.release(&key, &holder.id).await.expect("a server that answers");
}

impl Fixture for OnRedis {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(self.client().await) as _ })
    }

    fn foreign(&self) -> Result<&dyn Foreign, &'static str> {
        Ok(&self.foreign)
    }
}
