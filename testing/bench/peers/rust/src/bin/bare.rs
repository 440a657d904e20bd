//! bare [version]
//!
//! The `redis` client with the two usual commands: `SET NX PX`, retried every 100 ms, and a
//! script that compares and deletes.

use fencelock_runners::{Failure, Locks, connection, run};
use redis::Script;
use redis::aio::MultiplexedConnection;
use std::process::ExitCode;
use std::time::Duration;

/// The interval of redis-py.
const PAUSE: Duration = Duration::from_millis(100);

struct Bare {
    server: MultiplexedConnection,
    release: Script,
}

impl Locks for Bare {
    type Held = (String, String);

    async fn acquire(&self, key: &str, ttl: Duration) -> Result<Self::Held, Failure> {
        let value = format!("{:032x}", rand::random::<u128>());
        let mut set = redis::cmd("SET");
        set.arg(key).arg(&value).arg("NX").arg("PX").arg(u64::try_from(ttl.as_millis())?);
        while set.query_async::<Option<String>>(&mut self.server.clone()).await?.is_none() {
            tokio::time::sleep(PAUSE).await;
        }
        Ok((key.to_owned(), value))
    }

    async fn release(&self, (key, value): Self::Held) -> Result<(), Failure> {
        let freed: u8 = self.release.key(key).arg(value).invoke_async(&mut self.server.clone()).await?;
        if freed == 1 { Ok(()) } else { Err("the lock was lost".into()) }
    }
}

fn main() -> ExitCode {
    run("redis", |url| async move {
        let release = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
        Ok(Bare { server: connection(&url).await?, release: Script::new(release) })
    })
}
