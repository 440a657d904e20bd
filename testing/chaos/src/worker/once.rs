//! Work that a task does, or starts, at most once in each window.

use super::recorded_hold::RecordedHold;
use super::task::{Stopped, Task, answer};
use crate::Failure;
use crate::history::{Op, Outcome};
use crate::resource::Writer;
use crate::rng_ext::RngExt as _;
use crate::workload::{ONCE, STARTS, WINDOW};
use fencelock::{Error, FencingToken, Guard, Mode, OncePerWindow, OnceStart, UnfinishedRun};
use std::time::Duration;

/// Work that a task does at most once in each window.
impl Task {
    /// Tries to do the work in this window, and sometimes also at the begin of the next one, when others do.
    pub(super) async fn use_once(&mut self, stopped: &Stopped, writer: &mut Writer) -> Result<(), Failure> {
        let next = self.try_once(stopped, writer).await?;
        if let Some(next) = next.filter(|_| self.rng.chance(250_000)) {
            // A clock that has jumped back makes windows longer.
            answer(tokio::time::sleep(next.min(WINDOW)), Duration::MAX, stopped.clone()).await;
            self.try_once(stopped, writer).await?;
        }
        Ok(())
    }

    /// The time until the next window if the work is done in this one.
    async fn try_once(&mut self, stopped: &Stopped, writer: &mut Writer) -> Result<Option<Duration>, Failure> {
        let (wait, limit) = self.time_limits();
        let once = self.client.once(ONCE, WINDOW).ttl(self.ttl()).wait(wait).label(&self.name);
        let invoke_us = self.recorder.now();
        let answer = answer(once.clone().begin(), limit, stopped.clone()).await;
        match self.granted(ONCE, Mode::Exclusive, invoke_us, answer) {
            Some(OnceStart::Started(run)) => {
                let (guard, rest) = run.into_parts();
                let hold = RecordedHold::take(&guard, &self.claim(invoke_us), None);
                self.work(guard, rest, hold, &once, writer).await?;
                Ok(None)
            }
            Some(OnceStart::AlreadyDone(done)) => {
                self.recorder.seen("work that was done before");
                self.recorder.note_done(&self.name, invoke_us, &done);
                Ok(Some(done.next_window_in()))
            }
            None => Ok(None),
        }
    }

    async fn work(
        &mut self,
        guard: Guard,
        rest: UnfinishedRun,
        hold: RecordedHold,
        once: &OncePerWindow,
        writer: &mut Writer,
    ) -> Result<(), Failure> {
        hold.access(writer).await?;
        tokio::time::sleep(self.rng.millis(1, 40)).await;
        if self.rng.chance(400_000) {
            self.recorder.seen("work that was given back");
        } else if self.succeed(rest, &hold).await {
            let invoke_us = self.recorder.now();
            // No other client can succeed before the release, so the report is about this run.
            if let Ok(Some(done)) = once.done().await {
                self.recorder.note_done(&self.name, invoke_us, &done);
            }
        }
        hold.access(writer).await?;
        hold.release(guard).await;
        Ok(())
    }

    async fn succeed(&self, rest: UnfinishedRun, hold: &RecordedHold) -> bool {
        let invoke_us = self.recorder.now();
        let answer = rest.succeed().await;
        let line = hold.line(Op::Succeed, invoke_us, self.recorder.now());
        self.recorder.note(&match &answer {
            Ok(()) => line,
            Err(error @ Error::Lost { .. }) => line.result(Outcome::Fail).what(error.to_string()),
            Err(error) => line.result(Outcome::Info).what(format!("{error:#}")),
        });
        if answer.is_ok() {
            self.recorder.seen("work that succeeded");
        }
        answer.is_ok()
    }
}

/// Work that a task starts at most once in each window.
impl Task {
    /// Tries to start the work in this window. If it fails, its start counts nevertheless.
    pub(super) async fn use_start(&mut self, stopped: &Stopped, writer: &mut Writer) -> Result<(), Failure> {
        let (wait, limit) = self.time_limits();
        let once = self.client.once(STARTS, WINDOW).even_if_failed().ttl(self.ttl()).wait(wait).label(&self.name);
        let Some((guard, rest, hold)) = self.start(&once, limit, stopped, None).await else { return Ok(()) };
        hold.access(writer).await?;
        tokio::time::sleep(self.rng.millis(1, 40)).await;
        hold.access(writer).await?;
        if self.rng.chance(500_000) {
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
        let invoke_us = self.recorder.now();
        let answer = answer(once.clone().begin(), limit, stopped.clone()).await;
        let (guard, rest) = match self.granted(STARTS, Mode::Exclusive, invoke_us, answer)? {
            OnceStart::Started(run) => run.into_parts(),
            OnceStart::AlreadyDone(done) => {
                if failed == Some(done.fencing_token()) {
                    self.recorder.seen("a failed run whose start counted");
                }
                self.recorder.note_done(&self.name, invoke_us, &done);
                return None;
            }
        };
        let hold = RecordedHold::take(&guard, &self.claim(invoke_us), None);
        self.recorder.note(&hold.line(Op::Start, invoke_us, self.recorder.now()));
        let invoke_us = self.recorder.now();
        if let Ok(Some(done)) = once.done().await {
            self.recorder.note_done(&self.name, invoke_us, &done);
        }
        Some((guard, rest, hold))
    }
}
