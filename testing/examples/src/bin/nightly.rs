//! A nightly job that cron starts on fifty hosts. See `--help`.
#![forbid(unsafe_code)]

use clap::Parser;
use fencelock::{Client, FencingToken, Once, OnceError};
use fencelock_examples::access::default_url;
use fencelock_examples::ledger::{Ledger, WRITTEN};
use fencelock_examples::workers::{await_start, run_together};
use fencelock_examples::{Failure, exit_code};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The record of a run that failed.
const FAILED: &str = "failed";

/// A nightly job: cron starts it on every host at the same time, and it is done once
///
/// Each process represents a host. The first runs fail and do not use up the window: another host then runs the job.
#[derive(Debug, Parser)]
struct Arguments {
    /// The number of hosts
    #[arg(long, default_value_t = 50)]
    hosts: u32,
    /// The number of runs that fail before one succeeds
    #[arg(long, default_value_t = 2)]
    failures: i64,
    /// Where it is recorded that the job is done: `file:DIR` or `redis://HOST` [default: a file in a temporary directory]
    #[arg(long, value_name = "URL")]
    lock: Option<String>,
    /// The job of a child process: the number of a host
    #[arg(long, hide = true)]
    worker: Option<u32>,
    /// The database of that job
    #[arg(long, hide = true)]
    database: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.worker {
        Some(host) => work(&arguments, host),
        None => run(&arguments),
    };
    exit_code("nightly", done)
}

/// The whole night, from the start on all hosts to the report.
fn run(arguments: &Arguments) -> Result<(), Failure> {
    let dir = tempfile::Builder::new().prefix("nightly-").tempdir()?;
    let database = dir.path().join("report.db");
    let lock = arguments.lock.clone().unwrap_or_else(|| default_url(dir.path()));
    let report = Ledger::create(&database, 0)?;
    let mut common = vec!["--lock".into(), lock, "--database".into(), database.display().to_string()];
    common.push(format!("--failures={}", arguments.failures));
    let jobs: Vec<_> =
        (0..arguments.hosts).map(|host| [vec!["--worker".into(), host.to_string()], common.clone()].concat()).collect();
    println!("a nightly job, started on {} hosts at the same time", arguments.hosts);
    run_together(&jobs)?;
    println!("  failed runs  {}", report.count(FAILED)?);
    println!("  done         {}", report.count(WRITTEN)?);
    println!("  reports      {}", report.number()?);
    Ok(())
}

/// The process of a host.
fn work(arguments: &Arguments, host: u32) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::connect(arguments.lock.as_deref().unwrap_or_default()).await?;
        let database = arguments.database.as_deref().ok_or("a worker needs a database")?;
        let _harness = await_start()?;

        // A night is a year here, so that midnight does not come in between.
        let night = Duration::from_secs(365 * 86_400);
        let name = format!("host-{host}");
        let ended = client
            .once("nightly-report", night)
            .label(name.as_str())
            .run(async |held| write_report(database, &name, arguments.failures, held.fencing_token()))
            .await;
        match ended {
            Ok(Once::Done(())) => println!("{name}: wrote the report"),
            Ok(Once::AlreadyDone(_)) => {}
            Err(OnceError::Body(error)) => println!("{name}: {error}"),
            Err(error) => return Err(format!("{error:#}").into()),
        }
        client.close(Duration::from_secs(5)).await?;
        Ok(())
    })
}

/// The work itself. The database rejects a run that was replaced by a later one.
fn write_report(database: &Path, name: &str, failures: i64, token: FencingToken) -> Result<(), Failure> {
    let mut report = Ledger::open(database)?;
    if report.count(FAILED)? < failures {
        report.note(FAILED, name)?;
        return Err("the source of the report does not answer".into());
    }
    let reports = report.number()?;
    if !report.write(name, reports + 1, Some(token))? {
        return Err("the database has seen a greater fencing token".into());
    }
    Ok(())
}
