//! Every lock on a server.

use super::Redis;
use super::batch::send_batch;
use super::guard::Pass;
use super::{reply, script};
use fencelock_core::{Holding, Key, Unknown, key_of_side_key};

/// Keys asked for at one time when locks are listed.
const SCAN_COUNT: u32 = 500;

impl Redis {
    pub(super) async fn list_all(&self) -> Result<Vec<Holding>, Unknown> {
        let keys = self.keys().await?;
        let session = self.session().await?;
        let mut held = Vec::new();
        for keys in keys.chunks(SCAN_COUNT as usize) {
            let calls = keys
                .iter()
                .map(|key| script::inspect(&self.link.target.wire(key), Pass::free(&session.facts.run_id)))
                .collect();
            let batch = send_batch(&*session, calls, None).await.map_err(|error| self.unknown(&error))?;
            for (key, answer) in keys.iter().zip(batch.answers) {
                let answer = answer.map_err(|error| self.unknown(&error))?;
                let seen = reply::read_inspect(self.link.node(), answer)?;
                held.extend(seen.map(|seen| seen.holding(key, self.clock.wall_micros())));
            }
        }
        Ok(held)
    }

    /// Every lock of ours has had a fence, which lives on for a day. `SCAN` finds them without stopping the server.
    async fn keys(&self) -> Result<Vec<Key>, Unknown> {
        let session = self.session().await?;
        let (mut keys, mut cursor) = (Vec::new(), 0u64);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg("fencelock:*:fence").arg("COUNT").arg(SCAN_COUNT);
            let answer = session.send(&scan).await;
            self.link.check(&session);
            let page = answer.and_then(|value| Ok(redis::from_redis_value::<(u64, Vec<Vec<u8>>)>(value)?));
            let (next, names) = page.map_err(|error| self.unknown(&error))?;
            keys.extend(names.iter().filter_map(|name| self.key_of(name)));
            if next == 0 {
                keys.sort_unstable();
                keys.dedup();
                return Ok(keys);
            }
            cursor = next;
        }
    }

    fn key_of(&self, fence: &[u8]) -> Option<Key> {
        let wire = key_of_side_key(std::str::from_utf8(fence).ok()?, "fence")?;
        Key::new(wire.strip_prefix(self.link.target.prefix.as_str())?).ok()
    }
}
