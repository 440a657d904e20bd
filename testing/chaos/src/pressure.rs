//! A server that drops keys to make room for others.

use crate::Failure;
use crate::nodes::Node;
use fencelock_testkit::Reply;

/// Room beside what the server needs for itself.
const ROOM: u64 = 2 << 20;
/// How many of these have room.
const THING: usize = 100 << 10;
/// Each of them may push out a key, and sooner or later it is the one.
const THINGS: u32 = 20_000;

impl Node {
    /// From now on it may drop any key.
    pub(crate) fn may_evict(&self) -> Result<(), Failure> {
        let info = self.server().command(&["INFO", "memory"]);
        let used = info.text().and_then(|text| text.lines().find_map(|line| line.strip_prefix("used_memory:")));
        let used: u64 = used.ok_or("a server that does not tell how much memory it uses")?.parse()?;
        let limit = (used + ROOM).to_string();
        self.set("maxmemory-policy", "allkeys-lru")?;
        self.set("maxmemory", &limit)
    }

    /// One at a time: Redis 6.2 takes no more.
    fn set(&self, name: &str, value: &str) -> Result<(), Failure> {
        match self.server().command(&["CONFIG", "SET", name, value]) {
            reply if reply.text() == Some("OK") => Ok(()),
            reply => Err(format!("{name} cannot be set to {value}: {reply:?}").into()),
        }
    }

    /// Writes until there is no room for this key.
    pub(crate) fn press_out(&self, key: &str) -> Result<(), Failure> {
        let mut client = self.server().connect()?;
        let thing = "x".repeat(THING);
        for number in 0..THINGS {
            if client.command(&["EXISTS", key]) == Reply::Int(0) {
                return Ok(());
            }
            client.command(&["SET", &format!("thing-{number}"), &thing]);
        }
        Err(format!("the server keeps {key}, whatever is written").into())
    }

    /// As it was before.
    pub(crate) fn may_not_evict(&self) -> Result<(), Failure> {
        self.set("maxmemory", "0")?;
        self.set("maxmemory-policy", "noeviction")
    }
}
