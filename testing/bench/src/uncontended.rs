//! Acquires and releases an uncontended key in a loop.

use crate::bare::{self, BareLock};
use crate::report::{Uncontended, median};
use crate::{Effort, Failure};
use fencelock::backends::BootClock;
use fencelock::{Clock as _, Moment};
use redis::aio::MultiplexedConnection;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) async fn measure(url: &str, tasks: usize, effort: Effort) -> Result<Uncontended, Failure> {
    let client = fencelock::Client::connect(url).await?;
    // This loads the scripts into the server.
    client.lock("warm-up").await?.release().await?;
    let connection = bare::connect(url).await?;
    let (mut ours, mut bares) = (Vec::new(), Vec::new());
    for _ in 0..effort.pairs {
        ours.push(
            per_second(tasks, effort.span, |task, measurement| {
                ours_while(client.clone(), format!("ours-{task}"), measurement)
            })
            .await?,
        );
        bares.push(
            per_second(tasks, effort.span, |task, measurement| bare_while(connection.clone(), task, measurement))
                .await?,
        );
    }
    let ratios = ours.iter().zip(&bares).map(|(ours, bare)| ours / bare).collect();
    Ok(Uncontended { tasks, fencelock_per_s: median(ours), bare_per_s: median(bares), ratio: median(ratios) })
}

pub(crate) async fn ours_while(
    client: fencelock::Client,
    key: String,
    measurement: Measurement,
) -> Result<(), Failure> {
    while measurement.goes_on() {
        client.lock(&key).await?.release().await?;
        measurement.count();
    }
    Ok(())
}

async fn bare_while(
    mut connection: MultiplexedConnection,
    task: usize,
    measurement: Measurement,
) -> Result<(), Failure> {
    let (lock, holder) = (BareLock::new(&format!("bare-{task}")), format!("{task:032x}"));
    while measurement.goes_on() {
        lock.cycle(&mut connection, &holder).await?;
        measurement.count();
    }
    Ok(())
}

/// One measurement: its end, and the number of cycles so far.
#[derive(Clone)]
pub(crate) struct Measurement {
    end: Moment,
    done: Arc<AtomicU64>,
}

impl Measurement {
    pub(crate) fn goes_on(&self) -> bool {
        BootClock.now() < self.end
    }

    pub(crate) fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) async fn per_second<F>(
    tasks: usize,
    span: Duration,
    work: impl Fn(usize, Measurement) -> F,
) -> Result<f64, Failure>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let started = BootClock.now();
    let measurement = Measurement { end: started + span, done: Arc::default() };
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(work(task, measurement.clone()))).collect();
    for task in running {
        task.await??;
    }
    Ok(rate(measurement.done.load(Ordering::Relaxed), BootClock.now().since(started)))
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few millions")]
pub(crate) fn rate(count: u64, span: Duration) -> f64 {
    count as f64 / span.as_secs_f64()
}
