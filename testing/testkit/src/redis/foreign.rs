use super::resp::RespClient;
use crate::Reply;
use fencelock_conformance::{Foreign, ForeignAttempt};
use fencelock_core::{BoxFuture, Key};
use std::time::Duration;

/// Uses a Redis server like other lock libraries: `SET NX PX` with its own value.
#[derive(Debug, Clone)]
pub struct RedisForeign {
    port: u16,
    password: Option<String>,
}

impl RedisForeign {
    pub(super) const fn new(port: u16, password: Option<String>) -> Self {
        Self { port, password }
    }

    /// Runs one command on a new connection.
    pub fn command(&self, words: &[&str]) -> Reply {
        let mut client = match RespClient::connect(self.port) {
            Ok(client) => client,
            Err(error) => return Reply::NoAnswer(error.to_string()),
        };
        if let Some(password) = &self.password
            && let refused @ (Reply::Error(_) | Reply::NoAnswer(_)) = client.command(&["AUTH", password])
        {
            return refused;
        }
        client.command(words)
    }

    fn must(&self, words: &[&str]) -> Reply {
        match self.command(words) {
            Reply::Error(why) | Reply::NoAnswer(why) => panic!("{words:?}: {why}"),
            reply => reply,
        }
    }
}

impl Foreign for RedisForeign {
    fn take<'a>(&'a self, key: &'a Key, value: &'a str, ttl: Option<Duration>) -> BoxFuture<'a, ForeignAttempt> {
        Box::pin(async move {
            let millis = ttl.unwrap_or_default().as_millis().to_string();
            let mut words = vec!["SET", key.as_str(), value, "NX"];
            if ttl.is_some() {
                words.extend(["PX", &millis]);
            }
            if self.must(&words) == Reply::Nil { ForeignAttempt::Busy } else { ForeignAttempt::Took }
        })
    }

    fn put_foreign_value<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.must(&["DEL", key.as_str()]);
            self.must(&["HSET", key.as_str(), "owner", "another", "count", "1"]);
        })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.must(&["DEL", key.as_str()]);
        })
    }
}
