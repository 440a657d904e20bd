//! One round of a workload: starts worker processes of this program.

use super::pauses::Pauses;
use super::protocol::BEFORE_WRITE;
use fencelock::Clock;
use fencelock::backends::BootClock;
use fencelock_lab::workers::{GO, Worker, WorkerPool, start};
use fencelock_lab::{LiveJob, NotRun, Tally};
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The tallies of all workers, and how long they took.
pub(super) type RoundResult = (Vec<Tally>, Duration);

/// Starts one worker for each job, all at the same time. Up to `may_die` of them may be killed; with `pauses`, each is stopped
/// for a while. No worker is left running, even after an error.
pub(super) fn run(
    pool: &WorkerPool,
    jobs: &[LiveJob],
    may_die: u32,
    pauses: Option<&Pauses>,
) -> Result<RoundResult, NotRun> {
    let spawned = jobs.iter().map(|job| spawn(pool, job)).collect::<io::Result<Vec<_>>>();
    let mut workers = spawned.map_err(NotRun::Start)?;
    start(&mut workers).map_err(NotRun::Start)?;
    let (begun, failed) = (BootClock.now(), AtomicBool::new(false));
    let may_die = &AtomicU32::new(may_die);
    let is_over = &|| failed.load(Ordering::Relaxed) || pool.is_stopped();
    let tallies = std::thread::scope(|scope| {
        let (sender, tallies) = mpsc::channel();
        for (number, worker) in (0..).zip(workers) {
            let sender = sender.clone();
            scope.spawn(move || _ = sender.send(answer(number, worker, may_die, pauses, is_over)));
        }
        drop(sender);
        let tallies: Result<Vec<_>, _> = tallies.into_iter().filter_map(Result::transpose).collect();
        if tallies.is_err() {
            // Otherwise the other workers would run to their end.
            failed.store(true, Ordering::Relaxed);
            pool.stop();
        }
        tallies
    });
    Ok((tallies?, BootClock.now().since(begun)))
}

fn spawn(pool: &WorkerPool, job: &LiveJob) -> io::Result<Worker> {
    let mut command = Command::new(std::env::current_exe()?);
    // Quiet, because the table already counts the events that the client warns about.
    command.args(["-q", "lab", "worker"]).env_remove("FENCELOCK_URL").env_remove("FENCELOCK_PASSWORD");
    let mut worker = pool.spawn(command)?;
    worker.send(&job.line())?;
    Ok(worker)
}

/// Serves a worker until it sends its tally; `None` if it was killed as planned.
fn answer(
    number: u32,
    mut worker: Worker,
    may_die: &AtomicU32,
    pauses: Option<&Pauses>,
    is_over: &impl Fn() -> bool,
) -> Result<Option<Tally>, NotRun> {
    while let Some(line) = worker.receive().map_err(NotRun::Start)? {
        let Some(holder) = line.strip_prefix(BEFORE_WRITE) else { return Tally::parse(&line).map(Some) };
        let (holder, pid) = (holder.parse()?, worker.pid());
        let mut go = || worker.send(GO).map_err(NotRun::Start);
        match pauses {
            // The worker reads the reply when it continues.
            Some(pauses) => pauses.offer(number, pid, holder, is_over, go)?,
            None => go()?,
        }
    }
    let next = may_die.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if next.is_ok() { Ok(None) } else { Err(NotRun::Job("a worker exited before it finished".to_owned())) }
}
