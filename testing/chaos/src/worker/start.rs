//! Work that a task starts at most once in each window.

use super::recorded_hold::RecordedHold;
use super::task::{Stopped, Task, answer};
use crate::Failure;
use crate::history::Op;
use crate::recorder::now;
use crate::resource::Writer;
use crate::rng_ext::RngExt as _;
use crate::workload::{STARTS, WINDOW};
use fencelock::{FencingToken, Guard, Mode, OncePerWindow, OnceStart, UnfinishedRun};
use std::time::Duration;

impl Task {
    /// Tries to start the work in this window. If it fails, its start counts nevertheless.
    pub(super) async fn use_start(&mut self, stopped: &Stopped, writer: &mut Writer) -> Result<(), Failure> {
        let (wait, limit) = self.time_limits();
        let once = self.client.once(STARTS, WINDOW).even_if_failed().ttl(self.ttl()).wait(wait).label(&self.name);
        let Some((guard, rest, hold)) = self.start(&once, limit, stopped, None).await else { return Ok(()) };
        hold.access(writer).await?;
        tokio::time::sleep(self.rng.millis(1, 40)).await;
        hold.access(writer).await?;
        if self.rng.chance(300_000) {
            // The start is recorded, so this sends no request.
            let is_done = rest.succeed().await.is_ok();
            hold.release(guard).await;
            if is_done {
                self.recorder.seen("work that succeeded after its start");
            }
            return Ok(());
        }
        let failed = hold.fence;
        hold.release(guard).await;
        if let Some((guard, _, hold)) = self.start(&once, limit, stopped, Some(failed)).await {
            // A new window has begun.
            hold.release(guard).await;
        }
        Ok(())
    }

    /// Records a start and its window. `failed` is an earlier run of this task.
    async fn start(
        &self,
        once: &OncePerWindow,
        limit: Duration,
        stopped: &Stopped,
        failed: Option<FencingToken>,
    ) -> Option<(Guard, UnfinishedRun, RecordedHold)> {
        let invoke_us = now();
        let answer = answer(once.clone().begin(), limit, stopped.clone()).await;
        let (guard, rest) = match self.granted(STARTS, Mode::Exclusive, invoke_us, answer)? {
            OnceStart::Started(run) => run.into_parts(),
            OnceStart::AlreadyDone(done) => {
                if failed == Some(done.fencing_token()) {
                    self.recorder.seen("a failed run whose start counted");
                }
                self.note_done(invoke_us, &done);
                return None;
            }
        };
        let hold = RecordedHold::take(&guard, &self.claim(invoke_us), None);
        self.recorder.note(&hold.line(Op::Start, invoke_us, now()));
        let invoke_us = now();
        if let Ok(Some(done)) = once.done().await {
            self.note_done(invoke_us, &done);
        }
        Some((guard, rest, hold))
    }
}
