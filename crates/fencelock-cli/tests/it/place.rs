use fencelock_testkit::{RedisServer, redis_or_skip};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Where the locks of one test live, and its files.
pub(crate) struct Place {
    dir: TempDir,
    url: String,
    pub(crate) redis: Option<RedisServer>,
}

impl Place {
    /// Files in a directory of this test's own.
    pub(crate) fn files() -> Self {
        let dir = TempDir::with_prefix("fencelock-cli-").unwrap();
        let url = format!("file:{}/locks", dir.path().display());
        Self { dir, url, redis: None }
    }

    /// A Redis server for this test; `None`, after a message on stderr, if there is no `redis-server`.
    pub(crate) fn redis() -> Option<Self> {
        let server = redis_or_skip()?;
        let dir = TempDir::with_prefix("fencelock-cli-").unwrap();
        Some(Self { dir, url: server.url(), redis: Some(server) })
    }

    /// Files, and a Redis server if there is one.
    pub(crate) fn every_kind() -> Vec<Self> {
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

    pub(crate) fn server(&self) -> &RedisServer {
        self.redis.as_ref().unwrap()
    }
}
