//! Acquire and release a key that nobody else wants, as fast as the answers come.

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
    // The scripts are known to the server from here on.
    client.lock("warm-up").await?.release().await?;
    let connection = bare::connect(url).await?;
    let (mut ours, mut bares) = (Vec::new(), Vec::new());
    for _ in 0..effort.pairs {
        ours.push(
            per_second(tasks, effort.span, |task, stint| ours_while(client.clone(), format!("ours-{task}"), stint))
                .await?,
        );
        bares.push(per_second(tasks, effort.span, |task, stint| bare_while(connection.clone(), task, stint)).await?);
    }
    let ratios = ours.iter().zip(&bares).map(|(ours, bare)| ours / bare).collect();
    Ok(Uncontended { tasks, fencelock_per_s: median(ours), bare_per_s: median(bares), ratio: median(ratios) })
}

pub(crate) async fn ours_while(client: fencelock::Client, key: String, stint: Stint) -> Result<(), Failure> {
    while stint.goes_on() {
        client.lock(&key).await?.release().await?;
        stint.count();
    }
    Ok(())
}

async fn bare_while(mut connection: MultiplexedConnection, task: usize, stint: Stint) -> Result<(), Failure> {
    let (lock, holder) = (BareLock::new(&format!("bare-{task}")), format!("{task:032x}"));
    while stint.goes_on() {
        lock.cycle(&mut connection, &holder).await?;
        stint.count();
    }
    Ok(())
}

/// One measurement: until when, and how many so far.
#[derive(Clone)]
pub(crate) struct Stint {
    end: Moment,
    done: Arc<AtomicU64>,
}

impl Stint {
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
    work: impl Fn(usize, Stint) -> F,
) -> Result<f64, Failure>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let started = BootClock.now();
    let stint = Stint { end: started + span, done: Arc::default() };
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(work(task, stint.clone()))).collect();
    for task in running {
        task.await??;
    }
    Ok(rate(stint.done.load(Ordering::Relaxed), BootClock.now().since(started)))
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few millions")]
pub(crate) fn rate(count: u64, span: Duration) -> f64 {
    count as f64 / span.as_secs_f64()
}
