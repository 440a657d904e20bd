//! The bare client, which sends the same scripts as fencelock and nothing else.

use crate::Failure;
use fencelock_redis::lock_scripts;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, IntoConnectionInfo, Script, Value};

/// The channel that notifies waiters of hand-offs.
pub(crate) const CHANNEL: &str = "fencelock:bench";

/// The key names and script digests for one key, computed once, because only the requests are measured.
pub(crate) struct BareLock {
    keys: [String; 7],
    acquire: String,
    renew: String,
    release: String,
}

impl BareLock {
    pub(crate) fn new(key: &str) -> Self {
        let side = |what: &str| format!("fencelock:{{{key}}}:{what}");
        let [release, acquire, renew] = Self::scripts().map(|script| script.get_hash().to_owned());
        Self {
            keys: [
                key.to_owned(),
                side("fence"),
                side("line"),
                side("waiters"),
                side("alive"),
                side("holds"),
                side("held"),
            ],
            acquire,
            renew,
            release,
        }
    }

    pub(crate) async fn cycle(&self, connection: &mut MultiplexedConnection, holder: &str) -> Result<(), Failure> {
        let answer = word(&self.acquire("try", holder).query_async(connection).await?)?;
        if answer != "granted" {
            return Err(format!("the key of one task was {answer}").into());
        }
        self.release(holder).exec_async(connection).await?;
        Ok(())
    }

    /// `intent` is "try" or "enqueue"; waiters are notified like those of fencelock.
    pub(crate) fn acquire(&self, intent: &str, holder: &str) -> Cmd {
        let channel = if intent == "try" { "-" } else { CHANNEL };
        let mut acquire = self.brief(&self.acquire);
        acquire.arg(format!("{holder} bench:1")).arg(30_000).arg(1);
        acquire.arg(format!("-\t\t{intent}\t1700000000000000\t3000\t3000\t{channel}"));
        acquire
    }

    pub(crate) fn renew(&self, holder: &str) -> Cmd {
        let mut renew = self.command(&self.renew);
        renew.arg(holder).arg(30_000).arg(30_000);
        renew
    }

    pub(crate) fn release(&self, holder: &str) -> Cmd {
        let mut release = self.brief(&self.release);
        release.arg(format!("{holder} ")).arg("-\t\t1700000000000000\t3000");
        release
    }

    /// All scripts, to load them into the server.
    pub(crate) fn scripts() -> [Script; 3] {
        let [acquire, renew, release, _] = lock_scripts();
        [release, acquire, renew].map(Script::new)
    }

    pub(crate) fn key(&self) -> &str {
        &self.keys[0]
    }

    /// Runs a script by its digest, with the keys of this lock that it mostly needs.
    fn brief(&self, digest: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(digest).arg(3).arg(&self.keys[..3]);
        command
    }

    /// Runs a script by its digest, with the keys of this lock.
    pub(crate) fn command(&self, digest: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(digest).arg(self.keys.len()).arg(&self.keys);
        command
    }
}

/// The first word of a reply. That of an acquire can be a token alone.
pub(crate) fn word(answer: &Value) -> Result<String, Failure> {
    let first = match answer {
        Value::Int(token) if *token > 1 => return Ok("granted".to_owned()),
        Value::Array(fields) => fields.first().unwrap_or(answer),
        answer => answer,
    };
    Ok(redis::from_redis_value_ref(first)?)
}

pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection, Failure> {
    let info = format!("{url}?protocol=resp3").into_connection_info()?;
    // The setting of fencelock. Without it, the kernel delays small requests while others are in flight, which is slightly
    // cheaper for many tasks on one machine, and costs each of them a round trip between machines.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = redis::Client::open(info.set_tcp_settings(tcp))?;
    let config = AsyncConnectionConfig::new().set_pipeline_buffer_size(4096);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}
