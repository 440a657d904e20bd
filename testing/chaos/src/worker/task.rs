use super::Job;
use super::grip::Grip;
use crate::Failure;
use crate::history::{Line, Op, Outcome};
use crate::luck::Luck as _;
use crate::recorder::{Recorder, now};
use crate::resource::Writer;
use fastrand::Rng;
use fencelock::{Client, Error, Guard};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// One of many that want the same few keys.
#[derive(Debug)]
pub(crate) struct Task {
    number: usize,
    name: String,
    job: Arc<Job>,
    client: Client,
    recorder: Arc<Recorder>,
    rng: Rng,
}

/// What it does with a lock that it has got.
#[derive(Debug, Clone, Copy)]
enum Manner {
    /// Writes once or twice and gives it back.
    Short,
    /// Lets it be renewed.
    Long,
    /// Stops renewing it, sleeps past its end, and writes all the same.
    Overrun,
    /// Renews it by hand.
    ByHand,
    /// Drops the guard.
    Careless,
}

impl Task {
    pub(crate) fn new(number: usize, job: Arc<Job>, client: Client, recorder: Arc<Recorder>, rng: Rng) -> Self {
        Self { number, name: format!("{}.{number}", job.name), job, client, recorder, rng }
    }

    pub(crate) async fn run(mut self, stopped: watch::Receiver<bool>) -> Result<(), Failure> {
        let mut writer = Writer::connect(self.job.resource).await?;
        while !*stopped.borrow() {
            let key = self.choose();
            if let Some((guard, grip)) = self.acquire(&key, stopped.clone()).await {
                self.hold(guard, grip, &mut writer).await?;
            }
            tokio::time::sleep(self.rng.millis(2, 20)).await;
        }
        Ok(())
    }

    /// Mostly its own, or all tasks would end up in the line of the one key that is stuck.
    fn choose(&mut self) -> String {
        let keys = &self.job.keys;
        let place = if self.rng.usize(..20) == 0 { self.rng.usize(..keys.len()) } else { self.number % keys.len() };
        keys[place].clone()
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.job.ttl_ms)
    }

    async fn acquire(&mut self, key: &str, mut stopped: watch::Receiver<bool>) -> Option<(Guard, Grip)> {
        // A lease is passed on among those of one label only.
        let label = if self.job.shares { &self.job.name } else { &self.name };
        let lock = self.client.lock(key).ttl(self.ttl()).label(label);
        let rng = self.rng.usize(..100);
        let (wait, patience) = match rng {
            0..15 => (Duration::ZERO, Duration::MAX),
            15..25 => (self.rng.millis(1, 200), Duration::MAX),
            // These lose patience, so that the attempt is dropped at any point.
            25..30 => (Duration::from_secs(30), self.rng.millis(1, 100)),
            _ => (self.rng.millis(2000, 8000), Duration::MAX),
        };
        let invoke_us = now();
        let answer = tokio::select! {
            answer = lock.wait(wait).acquire() => Some(answer),
            () = tokio::time::sleep(patience) => None,
            _ = stopped.wait_for(|stopped| *stopped) => None,
        };
        let line = Line::new(&self.name, key, Op::Acquire, invoke_us, now());
        let line = match answer {
            Some(Ok(guard)) => {
                let grip = Grip::take(&guard, &self.name, invoke_us, self.ttl(), &self.recorder);
                return Some((guard, grip));
            }
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

    async fn hold(&mut self, guard: Guard, grip: Grip, writer: &mut Writer) -> Result<(), Failure> {
        let manner = match self.rng.usize(..200) {
            0..2 => Manner::Overrun,
            2..6 => Manner::Long,
            6..12 => Manner::ByHand,
            12..22 => Manner::Careless,
            _ => Manner::Short,
        };
        grip.write(writer).await?;
        match manner {
            Manner::Overrun => return self.overrun(guard, grip, writer).await,
            Manner::Long => return self.hold_long(guard, grip, writer).await,
            Manner::ByHand => {
                tokio::time::sleep(self.rng.millis(1, 40)).await;
                grip.renew(&self.client).await;
            }
            Manner::Short | Manner::Careless => tokio::time::sleep(self.rng.millis(1, 25)).await,
        }
        grip.write(writer).await?;
        if matches!(manner, Manner::Careless) {
            grip.drop(guard);
        } else {
            grip.release(guard).await;
        }
        Ok(())
    }

    async fn overrun(&mut self, guard: Guard, mut grip: Grip, writer: &mut Writer) -> Result<(), Failure> {
        grip.look(&guard);
        guard.into_holder();
        let left = Duration::from_micros(grip.until_us.saturating_sub(now()));
        tokio::time::sleep(left + self.rng.millis(20, 400)).await;
        self.recorder.seen("a hold past its lease");
        grip.write(writer).await
    }

    async fn hold_long(&mut self, guard: Guard, mut grip: Grip, writer: &mut Writer) -> Result<(), Failure> {
        let ends = now() + self.job.ttl_ms * 1000 / 10 * (12 + self.rng.u64(..) % 10);
        while now() < ends {
            tokio::select! {
                biased;
                why = guard.lost() => {
                    grip.lost(&why);
                    // It does not know better: the resource does.
                    return grip.write(writer).await;
                }
                () = tokio::time::sleep(Duration::from_millis(20)) => grip.look(&guard),
            }
        }
        grip.write(writer).await?;
        grip.release(guard).await;
        Ok(())
    }
}
