//! A connection to a real server.

use crate::not_replayed::NotReplayed;
use fencelock::Invalid;
use fencelock::backends::{Server, servers};
use redis::{Connection, ErrorKind, RedisError, RedisResult, Value, cmd};
use std::time::Duration;

/// The timeout of a server on the same machine or network.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The content of a key in the words of the model.
const DESCRIBE: &str = include_str!("lua/describe.lua");

/// The server of a URL that names exactly one: the lab sends commands of its own, also to several keys.
///
/// # Errors
/// [`Invalid`] for other URLs, and if the servers cannot be found.
pub fn single_server(url: &str) -> Result<Server, Invalid> {
    let mut servers = servers(url)?;
    match servers.pop() {
        Some(server) if servers.is_empty() && !server.is_cluster_node() => Ok(server),
        _ => Err(Invalid::new("the lab needs a single Redis, as in redis://HOST[:PORT][/DB]")),
    }
}

/// A connection.
pub(crate) struct ServerConnection(Connection);

impl ServerConnection {
    pub(crate) fn connect(url: &str) -> RedisResult<Self> {
        let invalid =
            |invalid: Invalid| RedisError::from((ErrorKind::InvalidClientConfig, "the URL", invalid.to_string()));
        let connection = single_server(url).map_err(invalid)?.client().get_connection_with_timeout(TIMEOUT)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self(connection))
    }

    pub(crate) fn command(&mut self, words: &[String]) -> RedisResult<Value> {
        let (name, rest) = words.split_first().map_or(("PING", words), |(name, rest)| (name.as_str(), rest));
        cmd(name).arg(rest).query(&mut self.0)
    }

    /// Sends a command about a lock.
    pub(crate) fn send(&mut self, words: &[String], lock: &str) -> RedisResult<Value> {
        if words.first().is_some_and(|word| word == "MULTI") {
            return self.delete_in_transaction(lock);
        }
        self.command(words)
    }

    /// `MULTI`, `DEL`, `EXEC`: returns the reply of `DEL`.
    fn delete_in_transaction(&mut self, key: &str) -> RedisResult<Value> {
        let (deleted,): (i64,) = redis::pipe().atomic().del(key).query(&mut self.0)?;
        Ok(Value::Int(deleted))
    }

    /// The value of a key.
    pub(crate) fn value(&mut self, key: &str) -> RedisResult<Option<String>> {
        cmd("GET").arg(key).query(&mut self.0)
    }

    /// The content of a key of any type, and its remaining milliseconds.
    pub(crate) fn content_and_ttl(&mut self, key: &str) -> RedisResult<(Option<String>, i64)> {
        redis::pipe().atomic().cmd("EVAL").arg(DESCRIBE).arg(1).arg(key).pttl(key).query(&mut self.0)
    }

    pub(crate) fn remove(&mut self, keys: &[String]) {
        // An unreachable server cannot be cleaned up.
        let _: RedisResult<Value> = cmd("DEL").arg(keys).query(&mut self.0);
    }

    /// The host and port of its master.
    pub(crate) fn master(&mut self) -> Result<(String, String), NotReplayed> {
        let info: String = cmd("INFO").arg("replication").query(&mut self.0)?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        match (field("role"), field("master_host"), field("master_port"), field("master_link_status")) {
            (Some("slave"), Some(host), Some(port), Some("up")) => Ok((host.to_owned(), port.to_owned())),
            (Some("slave"), ..) => Err(NotReplayed::NoReplica("its link to the master is down".to_owned())),
            _ => Err(NotReplayed::NoReplica("the server has another role".to_owned())),
        }
    }

    pub(crate) fn follow(&mut self, host: &str, port: &str) -> RedisResult<()> {
        cmd("REPLICAOF").arg(host).arg(port).exec(&mut self.0)
    }
}

impl std::fmt::Debug for ServerConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerConnection").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_url_of_one_server_is_taken() {
        for url in ["redis://h/3?prefix=x", "rediss://h", "redis+unix:///run/redis.sock"] {
            assert!(single_server(url).is_ok(), "{url}");
        }
        for url in ["redlock://a,b,c", "memory:"] {
            assert!(single_server(url).unwrap_err().to_string().contains("a single Redis"), "{url}");
        }
        assert!(single_server("redis://h?nonsense=1").unwrap_err().to_string().contains("nonsense"));
    }
}
