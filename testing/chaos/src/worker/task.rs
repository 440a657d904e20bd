use super::WorkerJob;
use super::recorded_hold::{Claim, RecordedHold};
use crate::Failure;
use crate::history::{HistoryLine, Op, Outcome};
use crate::recorder::{Recorder, micros};
use crate::resource::Writer;
use crate::rng_ext::RngExt as _;
use crate::workload::{self, ClaimSettings, Wanted};
use fastrand::Rng;
use fencelock::{Client, Error, Guard, Mode};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Whether the run has ended.
pub(super) type Stopped = watch::Receiver<bool>;

/// How often the holder of a long hold checks it.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One of many tasks that use the same keys.
#[derive(Debug)]
pub(crate) struct Task {
    number: usize,
    pub(super) name: String,
    pub(super) job: Arc<WorkerJob>,
    pub(super) client: Client,
    pub(super) recorder: Arc<Recorder>,
    pub(super) rng: Rng,
}

/// The answer to an attempt, unless it is given up before.
pub(super) async fn answer<T>(attempt: impl Future<Output = T>, limit: Duration, mut stopped: Stopped) -> Option<T> {
    tokio::select! {
        biased;
        answer = attempt => Some(answer),
        () = tokio::time::sleep(limit) => None,
        _ = stopped.wait_for(|stopped| *stopped) => None,
    }
}

/// How a task uses its lock.
#[derive(Debug, Clone, Copy)]
enum Usage {
    /// Writes once or twice, and releases the lock.
    Short,
    /// Holds the lock until it is renewed.
    Long,
    /// Stops the renewal, sleeps beyond the lease, and writes anyway.
    Overrun,
    /// Renews explicitly.
    ByHand,
    /// Drops the guard, or the future that releases it.
    Careless,
    /// Downgrades the lock.
    Downgrade,
}

impl Task {
    pub(crate) fn new(number: usize, job: Arc<WorkerJob>, client: Client, recorder: Arc<Recorder>, rng: Rng) -> Self {
        Self { number, name: format!("{}.{number}", job.name), job, client, recorder, rng }
    }

    pub(crate) async fn run(mut self, mut writer: Writer, stopped: Stopped) -> Result<(), Failure> {
        while !*stopped.borrow() {
            match workload::choose(&self.job.keys, self.number, &mut self.rng) {
                Wanted::One(key) => self.use_one(&key, &stopped, &mut writer).await?,
                Wanted::Once => self.use_once(&stopped, &mut writer).await?,
                Wanted::Start => self.use_start(&stopped, &mut writer).await?,
                Wanted::Several(keys) => self.use_several(&keys, &stopped, &mut writer).await?,
            }
            tokio::time::sleep(self.rng.millis(2, 20)).await;
        }
        Ok(())
    }

    async fn use_one(&mut self, key: &str, stopped: &Stopped, writer: &mut Writer) -> Result<(), Failure> {
        let Some((guard, hold)) = self.acquire(key, stopped.clone()).await else { return Ok(()) };
        let together = workload::together(key, guard.mode());
        if let Some(event) = together {
            self.recorder.enter(key, event);
        }
        self.hold(guard, hold, writer).await?;
        if together.is_some() {
            self.recorder.leave(key);
        }
        Ok(())
    }

    pub(super) fn ttl(&self) -> Duration {
        Duration::from_millis(self.job.ttl_ms)
    }

    /// Long enough for a renewal.
    pub(super) fn long_hold(&mut self) -> Duration {
        self.ttl() * (12 + self.rng.u32(..10)) / 10
    }

    /// A lease is shared only among attempts with the same label.
    pub(super) fn label(&self) -> &str {
        if self.job.shares { &self.job.name } else { &self.name }
    }

    /// How long an attempt waits, and after which time it is dropped.
    pub(super) fn time_limits(&mut self) -> (Duration, Duration) {
        match self.rng.usize(..100) {
            0..15 => (Duration::ZERO, Duration::MAX),
            15..25 => (self.rng.millis(1, 200), Duration::MAX),
            // These attempts time out, so that they are dropped at any point.
            25..30 => (Duration::from_secs(30), self.rng.millis(1, 100)),
            _ => (self.rng.millis(2000, 8000), Duration::MAX),
        }
    }

    async fn acquire(&mut self, key: &str, stopped: Stopped) -> Option<(Guard, RecordedHold)> {
        let mode = workload::mode_of(key, self.job.writers_percent, &mut self.rng);
        let (wait, limit) = self.time_limits();
        let request = ClaimSettings { key, mode, ttl: self.ttl(), wait, label: self.label() };
        let invoke_us = self.recorder.now();
        let answer = answer(workload::acquire(&self.client, request), limit, stopped).await;
        let (guard, slot) = self.granted(key, mode, invoke_us, answer)?;
        let hold = RecordedHold::take(&guard, &self.claim(invoke_us), slot);
        Some((guard, hold))
    }

    /// What this task requested at this time.
    pub(super) fn claim(&self, invoke_us: u64) -> Claim<'_> {
        Claim { client: &self.name, invoke_us, ttl: self.ttl(), recorder: &self.recorder }
    }

    /// What was granted. Without a grant, the attempt is recorded; without an answer, it was given up.
    pub(super) fn granted<T>(
        &self,
        key: &str,
        mode: Mode,
        invoke_us: u64,
        answer: Option<Result<T, Error>>,
    ) -> Option<T> {
        let line = HistoryLine::new(&self.name, key, Op::Acquire, invoke_us, self.recorder.now()).mode(mode);
        let line = match answer {
            Some(Ok(granted)) => return Some(granted),
            None => line.result(Outcome::Info).what("given up"),
            Some(Err(Error::Busy { .. })) => {
                self.recorder.seen("busy");
                line.result(Outcome::Fail).what("busy")
            }
            Some(Err(error)) => {
                if let Error::Unreachable { cause, .. } = &error {
                    let is_kept_out = cause.is_quarantine();
                    self.recorder.seen(if is_kept_out { "a claim refused in quarantine" } else { "unreachable" });
                }
                line.result(Outcome::Info).what(format!("{error:#}"))
            }
        };
        self.recorder.note(&line);
        None
    }

    async fn hold(&mut self, guard: Guard, hold: RecordedHold, writer: &mut Writer) -> Result<(), Failure> {
        let manner = match self.rng.usize(..200) {
            0..2 => Usage::Overrun,
            2..6 => Usage::Long,
            6..12 => Usage::ByHand,
            12..22 => Usage::Careless,
            22..80 if hold.mode == Mode::Exclusive && workload::has_downgrades(&hold.key) => Usage::Downgrade,
            _ => Usage::Short,
        };
        hold.access(writer).await?;
        match manner {
            Usage::Overrun => return self.overrun(guard, hold, writer).await,
            Usage::Long => return self.hold_long(guard, hold, writer).await,
            Usage::Downgrade => {
                let Some((guard, hold)) = hold.downgrade(guard).await else { return Ok(()) };
                hold.access(writer).await?;
                tokio::time::sleep(self.rng.millis(1, 25)).await;
                hold.access(writer).await?;
                hold.release(guard).await;
                return Ok(());
            }
            Usage::ByHand => {
                tokio::time::sleep(self.rng.millis(1, 40)).await;
                hold.renew(&self.client, guard.holder()).await;
            }
            Usage::Short | Usage::Careless => tokio::time::sleep(self.rng.millis(1, 25)).await,
        }
        hold.access(writer).await?;
        if !matches!(manner, Usage::Careless) {
            hold.release(guard).await;
        } else if self.rng.bool() {
            hold.drop(guard);
        } else {
            // The release goes on in the background.
            let _ = tokio::time::timeout(self.rng.millis(0, 4), hold.release(guard)).await;
        }
        Ok(())
    }

    async fn overrun(&mut self, guard: Guard, mut hold: RecordedHold, writer: &mut Writer) -> Result<(), Failure> {
        hold.record_renewal(&guard.held());
        guard.into_holder();
        let left = Duration::from_micros(hold.until_us.saturating_sub(self.recorder.now()));
        tokio::time::sleep(left + self.rng.millis(20, 400)).await;
        self.recorder.seen("a hold past its lease");
        hold.access(writer).await
    }

    async fn hold_long(&mut self, guard: Guard, mut hold: RecordedHold, writer: &mut Writer) -> Result<(), Failure> {
        let ends = self.recorder.now() + micros(self.long_hold());
        while self.recorder.now() < ends {
            tokio::select! {
                biased;
                why = guard.lost() => {
                    hold.lost(&why);
                    // The task does not know that its lease has ended: the resource rejects the write.
                    return hold.access(writer).await;
                }
                () = tokio::time::sleep(POLL_INTERVAL) => hold.record_renewal(&guard.held()),
            }
        }
        hold.access(writer).await?;
        hold.release(guard).await;
        Ok(())
    }
}
