//! Runs the job of one process.

use super::job::{LiveJob, Tally};
use super::work::Host;
use super::worker::RequestWorker;
use super::{CONCURRENCY, LockMethodKind, NotRun};
use crate::load::Holds;
use fencelock::{Moment, blocking};
use std::sync::atomic::AtomicBool;

/// Runs the job of a process. Blocks; do not call it in async code.
///
/// # Errors
/// [`NotRun`]. Keys stay on the server until [`super::Round`] is dropped.
pub fn work(job: &LiveJob, host: &impl Host) -> Result<Tally, NotRun> {
    let way = LockMethodKind::of(&job.scheme, job.load.workload)?;
    let client = match way {
        LockMethodKind::Library { .. } => Some(blocking::Client::connect(&job.url)?),
        LockMethodKind::Open | LockMethodKind::Program(_) => None,
    };
    let over = AtomicBool::new(false);
    let holds = Holds::from(Moment::default(), job.load.workload.has_many_holders());
    let shared = (&over, host as &dyn Host, &holds);
    let workers = (0..CONCURRENCY).map(|worker| RequestWorker::new(job, worker, &way, client.clone(), shared));
    let workers = workers.collect::<Result<Vec<_>, _>>()?;
    host.start().map_err(NotRun::Start)?;
    let tallies: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = workers.into_iter().map(|worker| scope.spawn(|| worker.serve())).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut sum = Tally::default();
    for tally in tallies {
        sum.add(&tally?);
    }
    sum.holds = holds.list();
    sum.stuck = job.load.share(job.process) - sum.answered;
    Ok(sum)
}
