//! The candidate and the observer of a process.

use super::WorkerJob;
use super::recorded_hold::RecordedHold;
use super::task::{POLL_INTERVAL, Stopped, Task, answer};
use crate::Failure;
use crate::recorder::Recorder;
use crate::resource::Writer;
use crate::rng_ext::RngExt as _;
use crate::workload::ELECTION;
use fencelock::{Client, Leadership, Mode, Observation};
use std::sync::Arc;
use std::time::Duration;

/// Records what an observer observes, until the run ends.
pub(super) async fn observe(
    job: Arc<WorkerJob>,
    client: Client,
    recorder: Arc<Recorder>,
    stopped: Stopped,
) -> Result<(), Failure> {
    let name = format!("{}.observer", job.name);
    let own = format!("{}.", job.name);
    let mut observer = client.election(ELECTION).observe()?;
    loop {
        let invoke_us = recorder.now();
        let notified = answer(observer.next(), Duration::MAX, stopped.clone()).await.flatten();
        recorder.note_observation(&name, ELECTION, invoke_us, notified.as_ref());
        match notified {
            Some(Observation::Leader(leader))
                if leader.value.as_ref().is_some_and(|value| !value.starts_with(&own)) =>
            {
                recorder.seen("a leader of another process was observed");
            }
            Some(_) => {}
            None => return Ok(()),
        }
    }
}

/// A task that campaigns and leads.
#[derive(Debug)]
pub(super) struct Candidate(pub(super) Task);

impl Candidate {
    /// Campaigns and leads again and again, until the run ends.
    pub(super) async fn run(mut self, mut writer: Writer, stopped: Stopped) -> Result<(), Failure> {
        while !*stopped.borrow() {
            self.campaign(&stopped, &mut writer).await?;
            tokio::time::sleep(self.0.rng.millis(2, 20)).await;
        }
        Ok(())
    }

    async fn campaign(&mut self, stopped: &Stopped, writer: &mut Writer) -> Result<(), Failure> {
        let (wait, limit) = self.0.time_limits();
        let invoke_us = self.0.recorder.now();
        let value = format!("{}@{invoke_us}", self.0.name);
        let election = self.0.client.election(ELECTION).value(&value).ttl(self.0.ttl()).wait(wait);
        let answer = answer(election.campaign(), limit, stopped.clone()).await;
        let Some(leadership) = self.0.granted(ELECTION, Mode::Exclusive, invoke_us, answer) else { return Ok(()) };
        let hold = RecordedHold::elected(&leadership.held(), &value, &self.0.claim(invoke_us));
        self.lead(leadership, hold, writer).await
    }

    async fn lead(
        &mut self,
        leadership: Leadership,
        mut hold: RecordedHold,
        writer: &mut Writer,
    ) -> Result<(), Failure> {
        hold.access(writer).await?;
        // Most terms are short, and some are renewed.
        let term = if self.0.rng.chance(50_000) { self.0.long_hold() } else { self.0.rng.millis(5, 100) };
        let ends = tokio::time::sleep(term);
        tokio::pin!(ends);
        loop {
            tokio::select! {
                biased;
                why = leadership.lost() => {
                    hold.lost(&why);
                    self.0.recorder.seen("a leader that lost its term");
                    // The resource rejects the write of a leader that has a successor.
                    return hold.access(writer).await;
                }
                () = &mut ends => break,
                () = tokio::time::sleep(POLL_INTERVAL) => hold.record_renewal(&leadership.held()),
            }
        }
        hold.access(writer).await?;
        if self.0.rng.chance(150_000) {
            hold.drop(leadership);
        } else {
            hold.end(leadership.resign()).await;
            self.0.recorder.seen("a leader that resigned");
        }
        Ok(())
    }
}
