//! A server that evicts keys.

use crate::Failure;
use crate::nodes::Node;
use fencelock_testkit::Reply;

/// The memory beyond the current use of the server.
const MARGIN: u64 = 2 << 20;
/// The size of a value.
const VALUE_BYTES: usize = 100 << 10;
/// The maximum number of values. Each may evict a key, eventually the lock.
const VALUES: u32 = 20_000;

impl Node {
    /// Allows the server to evict any key.
    pub(crate) fn may_evict(&self) -> Result<(), Failure> {
        let info = self.server().command(&["INFO", "memory"]);
        let used = info.text().and_then(|text| text.lines().find_map(|line| line.strip_prefix("used_memory:")));
        let used: u64 = used.ok_or("the server does not report its memory use")?.parse()?;
        let limit = (used + MARGIN).to_string();
        self.set("maxmemory-policy", "allkeys-lru")?;
        self.set("maxmemory", &limit)
    }

    /// Sets one option at a time: Redis 6.2 accepts no more.
    fn set(&self, name: &str, value: &str) -> Result<(), Failure> {
        match self.server().command(&["CONFIG", "SET", name, value]) {
            reply if reply.text() == Some("OK") => Ok(()),
            reply => Err(format!("{name} cannot be set to {value}: {reply:?}").into()),
        }
    }

    /// Writes values until this key is evicted.
    pub(crate) fn press_out(&self, key: &str) -> Result<(), Failure> {
        let mut client = self.server().connect()?;
        let thing = "x".repeat(VALUE_BYTES);
        for number in 0..VALUES {
            if client.command(&["EXISTS", key]) == Reply::Int(0) {
                return Ok(());
            }
            client.command(&["SET", &format!("thing-{number}"), &thing]);
        }
        Err(format!("the server did not evict {key}").into())
    }

    /// Restores the settings.
    pub(crate) fn may_not_evict(&self) -> Result<(), Failure> {
        self.set("maxmemory", "0")?;
        self.set("maxmemory-policy", "noeviction")
    }
}
