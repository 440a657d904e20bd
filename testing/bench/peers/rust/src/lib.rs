//! The common parts of the runners in Rust: one tokio task for each task of the job; `../README.md` describes a worker.
#![forbid(unsafe_code)]

mod job;
mod task;

pub use job::Job;

use redis::Client;
use redis::aio::MultiplexedConnection;
use std::error::Error;
use std::future::Future;
use std::io::{BufRead, Write, stdin, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use task::{Task, log_of};
use tokio::time::timeout_at;

pub type Failure = Box<dyn Error + Send + Sync>;

/// A lock library.
pub trait Locks: Send + Sync + 'static {
    /// A held lock.
    type Held: Send;
    /// Acquires a lock, and waits like the library does.
    fn acquire(&self, key: &str, ttl: Duration) -> impl Future<Output = Result<Self::Held, Failure>> + Send;
    /// Releases a lock.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Runs the program with its arguments and the library that `connect` returns.
pub fn run<L, F>(name: &str, connect: impl FnOnce(String) -> F) -> ExitCode
where
    L: Locks,
    F: Future<Output = Result<L, Failure>>,
{
    if std::env::args().nth(1).as_deref() == Some("version") {
        println!("{}", version(name));
        return ExitCode::SUCCESS;
    }
    let done = tokio::runtime::Runtime::new().map_err(Failure::from).and_then(|runtime| {
        let done = runtime.block_on(work(connect));
        // Waiting tasks do not delay the exit.
        runtime.shutdown_background();
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn work<L: Locks, F: Future<Output = Result<L, Failure>>>(
    connect: impl FnOnce(String) -> F,
) -> Result<(), Failure> {
    let mut lines = stdin().lock().lines();
    let mut line = move || lines.next().transpose();
    let job: Job = serde_json::from_str(&line()?.ok_or("there is no job")?)?;
    let job = Arc::new(job);
    let locks = Arc::new(connect(job.url.clone()).await?);
    let server = connection(&job.url).await?;
    say("ready")?;
    line()?;
    let counted = Instant::now() + Duration::from_millis(job.warm_up_ms);
    let end = counted + Duration::from_millis(job.span_ms);
    let tasks: Vec<_> = (0..job.tasks).map(|number| Arc::new(Task::new(&job, number, counted, end))).collect();
    let running: Vec<_> =
        tasks.iter().map(|task| tokio::spawn(Arc::clone(task).run(Arc::clone(&locks), server.clone()))).collect();
    if job.is_sale() {
        // A started sale must be completed; it may also end early.
        let patience = end + Duration::from_secs(5);
        for task in running {
            if timeout_at(patience.into(), task).await.is_err() {
                break;
            }
        }
    } else {
        tokio::time::sleep_until(end.into()).await;
    }
    say(&serde_json::to_string(&log_of(&tasks))?)?;
    Ok(())
}

/// A connection with the default settings of the client.
///
/// # Errors
/// If no server is reachable at this URL.
pub async fn connection(url: &str) -> Result<MultiplexedConnection, Failure> {
    Ok(Client::open(url)?.get_multiplexed_async_connection().await?)
}

fn say(line: &str) -> std::io::Result<()> {
    let mut output = stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}

/// The version in the lock file.
fn version(name: &str) -> String {
    let of = |package: &str| {
        let entry = format!("name = \"{package}\"\nversion = \"");
        let rest = include_str!("../Cargo.lock").split_once(&entry).map_or("unknown\"", |(_, rest)| rest);
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    match name {
        "redis" => format!("redis {}", of("redis")),
        _ => format!("{name} {}, redis {}", of(name), of("redis")),
    }
}
