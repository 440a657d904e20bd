//! fencelock-cycles-distributed-lock URL TASKS MILLIS
//!
//! Prints how often a second the tasks together acquire and release a lock of their own, with the pool that the library makes.
#![forbid(unsafe_code)]

use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_postgres::PostgresLockProvider;
use std::error::Error;
use std::time::{Duration, Instant};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, tasks, millis] = arguments.as_slice() else { return Err("URL TASKS MILLIS".into()) };
    let provider = PostgresLockProvider::new(url.as_str()).await?;
    let span = Duration::from_millis(millis.parse()?);
    // The connections are there.
    cycles(&provider, tasks.parse()?, span / 10).await?;
    println!("{}", cycles(&provider, tasks.parse()?, span).await?);
    Ok(())
}

async fn cycles(provider: &PostgresLockProvider, tasks: u32, span: Duration) -> Result<f64, Failure> {
    let begun = Instant::now();
    let all: Vec<_> = (0..tasks).map(|task| provider.create_lock(&format!("k{task}"))).collect();
    let all = all.into_iter().map(|lock| {
        tokio::spawn(async move {
            let mut done = 0_u32;
            while begun.elapsed() < span {
                lock.acquire(None).await?.release().await?;
                done += 1;
            }
            Ok::<_, Failure>(done)
        })
    });
    let mut done = 0;
    for task in all.collect::<Vec<_>>() {
        done += task.await??;
    }
    Ok(f64::from(done) / begun.elapsed().as_secs_f64())
}
