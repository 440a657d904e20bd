//! A flash sale, a bank and a pool on a real server.

use super::args::{ALL, WorkloadArgs, WorkloadCommand};
use super::pauses::Pauses;
use super::progress::{Counter, Progress};
use super::protocol::Parent;
use super::round::run;
use super::url::url_of_command_line;
use super::write;
use crate::context::{Context, may_colour, print};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::Signals;
use fencelock_lab::workers::WorkerPool;
use fencelock_lab::{
    Lang, LiveJob, Load, NotRun, Round, Score, Tally, WorkloadKind, chart, json_scores, scores, work,
    workload_scheme_ids,
};
use std::sync::Arc;
use std::time::Duration;

/// The TTL, as in the articles: longer than any request should take.
const TTL: Duration = Duration::from_secs(5);
/// The TTL if a request must wait for the lock to expire.
const SHORT_TTL: Duration = Duration::from_millis(300);
/// How long a slow holder sleeps: past the end of its own lock and of the next one.
const SLEEP: Duration = Duration::from_millis(700);

/// Runs the same workload with every scheme, and prints the results.
pub(super) async fn run_workload(command: &WorkloadCommand, context: &Context) -> Result<Exit, Failure> {
    let Some((options, load)) = load(command) else { return worker() };
    check(&load)?;
    let lang = options.lang.into();
    // The workload requires --url: FENCELOCK_URL names the server of production locks.
    let url = url_of_command_line()?.ok_or_else(|| Failure::new(Exit::Usage, needs_url(lang)))?;
    let mut signals = Signals::listen().map_err(|error| Failure::system("handle signals", error))?;
    let pool = Arc::new(WorkerPool::default());
    let schemes = chosen(&options.scheme, load.workload);
    let progress = Progress::of(schemes.len(), context.report);
    let mut results = {
        let (pool, counter) = (Arc::clone(&pool), progress.counter());
        tokio::task::spawn_blocking(move || each(&url, &schemes, load, &pool, &counter))
    };
    let results = tokio::select! {
        biased;
        signal = signals.ending() => {
            pool.stop();
            // It removes its keys first.
            signals.let_finish(results, signal).await;
            return Ok(signal.into());
        }
        results = &mut results => results,
    };
    drop(progress);
    let results =
        results.map_err(|error| Failure::system("run the workload", error))?.map_err(|reason| refusal(&reason))?;
    if let Some(file) = &options.svg {
        write(file, &chart(&results, lang))?;
    }
    if context.report.json {
        print(&format!("{:#}\n", json_scores(&results)))?;
    } else {
        print(&scores(&results, lang, may_colour()))?;
    }
    Ok(Exit::Success)
}

fn load(command: &WorkloadCommand) -> Option<(&WorkloadArgs, Load)> {
    let (workload, requests, (stock, permits), options) = match command {
        WorkloadCommand::Stock { stock, requests, readers, options } => {
            (if *readers { WorkloadKind::Readers } else { WorkloadKind::Stock }, *requests, (*stock, 0), options)
        }
        WorkloadCommand::Bank { requests, transfers, options } => {
            (if *transfers { WorkloadKind::Transfers } else { WorkloadKind::Bank }, *requests, (0, 0), options)
        }
        WorkloadCommand::Pool { permits, requests, options } => (WorkloadKind::Pool, *requests, (0, *permits), options),
        WorkloadCommand::Worker => return None,
    };
    let ttl = if options.overrun || options.crash || options.pause { SHORT_TTL } else { TTL };
    let load = Load {
        workload,
        processes: options.processes,
        requests,
        stock,
        permits,
        work: options.work,
        ttl,
        sleep: options.overrun.then_some(SLEEP),
        crash: options.crash,
        pause: options.pause,
    };
    Some((options, load))
}

/// A pool without a process left has no result.
fn check(load: &Load) -> Result<(), Failure> {
    if load.workload == WorkloadKind::Pool && load.crashes() >= load.processes {
        let more = format!("--crash kills a process for each permit: use more than {} --processes", load.permits);
        return Err(Failure::new(Exit::Usage, more));
    }
    Ok(())
}

fn chosen(scheme: &str, workload: WorkloadKind) -> Vec<String> {
    if scheme == ALL {
        return workload_scheme_ids(workload).into_iter().map(str::to_owned).collect();
    }
    vec![scheme.to_owned()]
}

fn each(url: &str, schemes: &[String], load: Load, pool: &WorkerPool, counter: &Counter) -> Result<Vec<Score>, NotRun> {
    let turn = |scheme: &String| {
        counter.start(scheme);
        let mut round = Round::open(url, scheme, load)?;
        let pauses = load.pause.then(|| Pauses::of(&round)).transpose()?;
        let (tallies, took) = run(pool, &round.jobs(), load.crashes(), pauses.as_ref())?;
        counter.done();
        round.score(&tallies, took)
    };
    schemes.iter().map(turn).collect()
}

fn refusal(reason: &NotRun) -> Failure {
    let exit = match reason {
        NotRun::Server(_) | NotRun::Client(_) | NotRun::Job(_) => Exit::Unreachable,
        NotRun::Scheme(_) => Exit::Usage,
        NotRun::Start(_) => Exit::System,
    };
    Failure::new(exit, reason)
}

fn needs_url(lang: Lang) -> &'static str {
    lang.pick(
        "the workload needs a real Redis: start one with `redis-server --port 6390 --save ''`, and add --url \
         redis://127.0.0.1:6390 (FENCELOCK_URL is ignored here)",
        "故事要在真实的 Redis 上运行：先用 `redis-server --port 6390 --save ''` 启动一个，再加上 --url redis://127.0.0.1:6390（FENCELOCK_URL 在这里不算数）",
    )
}

/// Runs a worker process of a workload.
pub(super) fn worker() -> Result<Exit, Failure> {
    // On another thread, because the client has its own runtime.
    let done = std::thread::spawn(work_as_child).join();
    let tally = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(|reason| refusal(&reason))?;
    print(&format!("{}\n", tally.line()))?;
    Ok(Exit::Success)
}

fn work_as_child() -> Result<Tally, NotRun> {
    let (parent, line) = Parent::attach().map_err(NotRun::Start)?;
    work(&LiveJob::parse(&line)?, &parent)
}
