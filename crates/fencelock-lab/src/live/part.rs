//! One process's part of a story.

use super::hand::Hand;
use super::job::{Job, Tally};
use super::work::Host;
use super::{HANDS, NotRun, Way};
use fencelock::blocking;
use std::sync::atomic::AtomicBool;

/// Does a process's part. Blocks, and must not be called from async code.
///
/// # Errors
/// [`NotRun`]. What was begun by then stays on the server until [`super::Round`] is dropped.
pub fn work(job: &Job, host: &impl Host) -> Result<Tally, NotRun> {
    let way = Way::of(&job.scheme)?;
    let client = match way {
        Way::Library { .. } => Some(blocking::Client::connect(&job.url)?),
        Way::Open | Way::Program(_) => None,
    };
    let over = AtomicBool::new(false);
    let hands = (0..HANDS).map(|hand| Hand::new(job, hand, &way, client.clone(), (&over, host)));
    let hands = hands.collect::<Result<Vec<_>, _>>()?;
    host.start().map_err(NotRun::Start)?;
    let tallies: Vec<_> = std::thread::scope(|scope| {
        let hands: Vec<_> = hands.into_iter().map(|hand| scope.spawn(|| hand.serve())).collect();
        hands.into_iter().map(|hand| hand.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let mut sum = Tally::default();
    for tally in tallies {
        sum.add(tally?);
    }
    sum.stuck = job.load.share(job.process) - sum.answered;
    Ok(sum)
}
