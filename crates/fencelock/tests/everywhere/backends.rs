use fencelock::backends::{BootClock, File, Memory, Quorum};
use fencelock::contract::{Backend, RetryPlan, register};
use fencelock::{Builder, Client, Drift};
use fencelock_postgres_testing::{PostgresServer, postgres_or_skip};
use fencelock_register::RegisterLocks;
use fencelock_testkit::{
    ClusterNodes, MemoryRegister, RedisServer, Sentinels, redis_or_skip, redlock_url, servers_or_skip,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tempfile::TempDir;

/// Of a register: the unit of its times, and how far the clocks of its front ends are apart. A store has seconds.
const UNIT: Duration = Duration::from_millis(2);
const SKEW: Duration = Duration::from_millis(5);

/// One set of locks. Each client has its own way to it, as another process would.
pub(crate) enum TestBackend {
    Memory(Arc<Memory>),
    File(TempDir),
    Register(MemoryRegister, AtomicU32),
    Quorum(Vec<Arc<dyn Backend>>),
    Servers(Vec<RedisServer>),
    Sentinels(Sentinels),
    Cluster(ClusterNodes),
    /// A schema of a server that the tests share.
    Postgres(Arc<PostgresServer>, u32),
}

impl TestBackend {
    pub(crate) async fn client(&self, settings: Builder) -> Client {
        match self {
            Self::Memory(memory) => settings.backend(memory.clone()),
            Self::File(directory) => settings.backend(Arc::new(File::open(directory.path()).unwrap())),
            Self::Register(register, clients) => {
                // Every second client is behind another front end.
                let front_end = register.front_end(SKEW * (clients.fetch_add(1, Ordering::SeqCst) % 2));
                let times = register::StoreTiming { skew: SKEW, resolution: UNIT, ..register::StoreTiming::default() };
                let polls = RetryPlan::new(Duration::from_millis(2), Duration::from_millis(50));
                let locks = RegisterLocks::new(Arc::new(front_end)).with_timing(times).with_polls(polls);
                settings.backend(Arc::new(locks))
            }
            Self::Quorum(nodes) => {
                let quorum = Quorum::with_clock(nodes.clone(), Arc::new(BootClock), Drift::default());
                settings.backend(Arc::new(quorum.unwrap()))
            }
            Self::Servers(servers) => settings.connect(&url(servers)).await,
            Self::Sentinels(sentinels) => settings.connect(&sentinels.url("")).await,
            Self::Cluster(cluster) => settings.connect(&cluster.url("")).await,
            Self::Postgres(server, number) => {
                let url = format!("{}?create=true&schema=test{number}", server.url("postgres"));
                settings.connect(&url).await
            }
        }
        .unwrap()
    }
}

fn url(servers: &[RedisServer]) -> String {
    if let [server] = servers {
        return server.url();
    }
    redlock_url(servers, "trust_empty=true")
}

pub(crate) fn memory() -> Option<TestBackend> {
    Some(TestBackend::Memory(Arc::new(Memory::new())))
}

pub(crate) fn leases() -> Option<TestBackend> {
    Some(TestBackend::Memory(Arc::new(Memory::with_leases(Arc::new(BootClock)))))
}

pub(crate) fn register() -> Option<TestBackend> {
    Some(TestBackend::Register(MemoryRegister::with_clock(Arc::new(BootClock), UNIT), AtomicU32::new(0)))
}

pub(crate) fn file() -> Option<TestBackend> {
    Some(TestBackend::File(TempDir::new().unwrap()))
}

pub(crate) fn redis() -> Option<TestBackend> {
    Some(TestBackend::Servers(vec![redis_or_skip()?]))
}

/// Nothing fails over here.
pub(crate) fn sentinel() -> Option<TestBackend> {
    let sentinels = Sentinels::of(vec![redis_or_skip()?]);
    Some(TestBackend::Sentinels(sentinels.unwrap()))
}

pub(crate) fn cluster() -> Option<TestBackend> {
    Some(TestBackend::Cluster(ClusterNodes::start_or_skip(2, 0)?))
}

/// A server starts in a second, and a schema is made at once.
pub(crate) fn postgres() -> Option<TestBackend> {
    static SHARED: Mutex<Option<(Weak<PostgresServer>, u32)>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let (server, number) = shared.take().unwrap_or_default();
    let server = match server.upgrade() {
        Some(server) => server,
        None => Arc::new(postgres_or_skip()?),
    };
    *shared = Some((Arc::downgrade(&server), number + 1));
    Some(TestBackend::Postgres(server, number))
}

pub(crate) fn quorum() -> Option<TestBackend> {
    let nodes = (0..3).map(|_| Arc::new(Memory::with_leases(Arc::new(BootClock))) as _).collect();
    Some(TestBackend::Quorum(nodes))
}

pub(crate) fn quorum_of_redis() -> Option<TestBackend> {
    Some(TestBackend::Servers(servers_or_skip(3)?))
}

/// One test for each fact on each backend. Some have an attribute. Candidates of an election and runs of work never share leases, so
/// these facts are tested one way.
macro_rules! everywhere {
    (@at $attribute:meta, $backend:ident, [$($fact:path => $name:ident),+ $(,)?], [$($single:path => $single_name:ident),+ $(,)?]) => {
        mod $backend {
            mod sharing {
                $(#[tokio::test]
                #[$attribute]
                async fn $name() {
                    let Some(backend) = crate::backends::$backend() else { return };
                    $fact(&backend, true).await;
                })+
                $(#[tokio::test]
                #[$attribute]
                async fn $single_name() {
                    let Some(backend) = crate::backends::$backend() else { return };
                    $single(&backend).await;
                })+
            }
            mod alone {
                $(#[tokio::test]
                #[$attribute]
                async fn $name() {
                    let Some(backend) = crate::backends::$backend() else { return };
                    $fact(&backend, false).await;
                })+
            }
        }
    };
    (both ways: $both:tt, one way: $one:tt) => {
        everywhere!(@at cfg(all()), memory, $both, $one);
        everywhere!(@at cfg(all()), leases, $both, $one);
        everywhere!(@at cfg(all()), file, $both, $one);
        everywhere!(@at cfg(all()), register, $both, $one);
        everywhere!(@at cfg(all()), redis, $both, $one);
        everywhere!(@at ignore = "it takes a minute and a half: scripts/test-servers", sentinel, $both, $one);
        everywhere!(@at ignore = "it takes a minute and a half: scripts/test-servers", cluster, $both, $one);
        everywhere!(@at ignore = "it takes a minute: scripts/test-servers", postgres, $both, $one);
        everywhere!(@at cfg(all()), quorum, $both, $one);
        everywhere!(@at cfg(all()), quorum_of_redis, $both, $one);
    };
}

pub(crate) use everywhere;
