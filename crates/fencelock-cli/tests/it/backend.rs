use crate::test::Test;
use fencelock_postgres_testing::{PostgresServer, postgres_or_skip};
use fencelock_testkit::{ObjectServer, RedisServer, redis_or_skip, redlock_url, servers_or_skip};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The URL of a server that a busy machine may not run for some time.
pub(crate) fn patient(server: &RedisServer) -> String {
    format!("{}?timeout=5000", server.url())
}

/// Where the locks of one test live, and its files.
pub(crate) struct TestBackend {
    dir: TempDir,
    url: String,
    pub(crate) redis: Option<RedisServer>,
    /// Of a quorum.
    nodes: Vec<RedisServer>,
    pub(crate) objects: Option<ObjectServer>,
    database: Option<PostgresServer>,
}

impl TestBackend {
    /// Files in a directory of this test's own.
    pub(crate) fn files() -> Self {
        let dir = TempDir::with_prefix("fencelock-cli-").unwrap();
        let url = format!("file:{}/locks", dir.path().display());
        Self { dir, url, redis: None, nodes: Vec::new(), objects: None, database: None }
    }

    /// A Redis server for this test; `None`, after a message on stderr, if there is no `redis-server`.
    pub(crate) fn redis() -> Option<Self> {
        let server = redis_or_skip()?;
        Some(Self { url: patient(&server), redis: Some(server), ..Self::files() })
    }

    /// A store of objects for this test. `options` begins with `&` if it is not empty.
    pub(crate) fn objects(options: &str) -> Self {
        let server = ObjectServer::start();
        Self { url: server.url("locks/jobs", options), objects: Some(server), ..Self::files() }
    }

    /// A database for this test, with a schema.
    pub(crate) fn database() -> Option<Self> {
        let server = postgres_or_skip()?;
        let url = format!("{}?timeout=20000", server.url("postgres"));
        let backend = Self { url, database: Some(server), ..Self::files() };
        Test::new(&backend, "init").says(0, &["NODE"]);
        Some(backend)
    }

    /// Runs a statement on its database.
    pub(crate) fn sql(&self, text: &str) -> String {
        self.database.as_ref().unwrap().sql(text)
    }

    /// Three Redis servers for this test.
    pub(crate) fn quorum() -> Option<Self> {
        let nodes = servers_or_skip(3)?;
        // A busy machine may not run one of them for some time. Some tests have long leases.
        let url = redlock_url(&nodes, "node_timeout=2000&max_ttl=3600000");
        let backend = Self { url, nodes, ..Self::files() };
        Test::new(&backend, "init --trust-empty").ok();
        Some(backend)
    }

    /// Files, and a Redis server and a quorum if there is a server.
    pub(crate) fn every_kind() -> Vec<Self> {
        [Some(Self::files()), Self::redis(), Self::quorum()].into_iter().flatten().collect()
    }

    /// The backends that have semaphores.
    pub(crate) fn with_semaphores() -> Vec<Self> {
        [Some(Self::files()), Self::redis()].into_iter().flatten().collect()
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn store(&self) -> &ObjectServer {
        self.objects.as_ref().unwrap()
    }

    /// All Redis servers, of which there is one, or each node of a quorum.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        self.redis.iter().chain(&self.nodes)
    }

    pub(crate) fn server(&self) -> &RedisServer {
        self.redis.as_ref().unwrap()
    }
}
