//! Changes the limit of a semaphore that is in use.

use super::{Redis, Refusal, Steps, reply, script};
use fencelock_core::{Key, Resize, Unknown};

impl Redis {
    /// One script changes the limit. If there are more waiters or ended holds than it examines, the same script is called again.
    /// The change is then complete, so an error of a later call is not returned; waiters that were not examined are refused at
    /// their next poll.
    pub(super) async fn set_limit(&self, key: &Key, limit: u32) -> Result<Resize, Unknown> {
        Resize::check(self.link.node(), limit)?;
        let (mut answer, mut ticket) = self.resize_once(key, limit, None).await?;
        let mut steps = Steps::NEW;
        while let (Resize::Resized(done), Some(examined)) = (&answer, &ticket)
            && steps.more(self.link.target.limit)
        {
            let next = self.resize_once(key, limit, Some((done.before, examined))).await;
            let Ok((Resize::Resized(now), left)) = next else { break };
            (answer, ticket) = (Resize::Resized(now), left);
        }
        Ok(answer)
    }

    async fn resize_once(
        &self,
        key: &Key,
        limit: u32,
        done: Option<(u32, &str)>,
    ) -> Result<(Resize, Option<String>), Unknown> {
        let (node, wire, now) = (self.link.node(), self.link.target.wire(key), self.clock.wall_micros());
        let answer = self.call(|epoch_check| script::resize(&wire, limit, done, now, epoch_check)).await?;
        Refusal::check(node, self.quarantine(), &answer)?;
        self.link.note_unread(&wire, &answer);
        reply::read_resize(node, answer, limit)
    }
}
