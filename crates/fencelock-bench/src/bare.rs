//! The bare client, sending what fencelock sends and nothing else.

use crate::Failure;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, IntoConnectionInfo, Script};

/// The scripts of the product, so that the server has the same work.
const LINE: &str = include_str!("../../fencelock-backends/src/redis/lua/line.lua");
const ACQUIRE: &str = include_str!("../../fencelock-backends/src/redis/lua/acquire.lua");
const RELEASE: &str = include_str!("../../fencelock-backends/src/redis/lua/release.lua");

/// The names and digests for one key, made once: what is measured is the sending.
pub(crate) struct BareLock {
    keys: [String; 4],
    acquire: String,
    release: String,
}

impl BareLock {
    pub(crate) fn new(key: &str) -> Self {
        let side = |what: &str| format!("fencelock:{{{key}}}:{what}");
        Self {
            keys: [key.to_owned(), side("fence"), side("line"), side("waiters")],
            acquire: Script::new(&format!("{LINE}{ACQUIRE}")).get_hash().to_owned(),
            release: Script::new(&format!("{LINE}{RELEASE}")).get_hash().to_owned(),
        }
    }

    pub(crate) async fn cycle(&self, connection: &mut MultiplexedConnection, holder: &str) -> Result<(), Failure> {
        let value = format!("{holder} bench:1");
        let mut acquire = self.command(&self.acquire);
        acquire
            .arg("try")
            .arg(holder)
            .arg(value)
            .arg(30_000)
            .arg(1_700_000_000_000_000_u64)
            .arg(3000)
            .arg(3000)
            .arg("-")
            .arg(1)
            .arg("-");
        let answer: (String, String, u64) = acquire.query_async(connection).await?;
        if answer.0 != "granted" {
            return Err(format!("the key of one task was {}", answer.0).into());
        }
        let mut release = self.command(&self.release);
        release.arg(holder).arg(1_700_000_000_000_000_u64).arg(3000).arg("-");
        release.exec_async(connection).await?;
        Ok(())
    }

    fn command(&self, digest: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(digest).arg(self.keys.len()).arg(&self.keys);
        command
    }
}

pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection, Failure> {
    let info = format!("{url}?protocol=resp3").into_connection_info()?;
    // As the product sets it: without, the kernel holds small requests back while others are under way, which on one
    // machine is a little cheaper for many tasks, and between machines costs each of them a round trip.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = redis::Client::open(info.set_tcp_settings(tcp))?;
    let config = AsyncConnectionConfig::new().set_pipeline_buffer_size(4096);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}
