//! What a run is expected to show.

use super::known::{KNOWN, title};
use super::plan::{CELLS, Cell, PERMITS, READERS};
use super::run::Run;
use fencelock_load::{LoadMode, Workload};

/// The library that the others are compared with.
pub(crate) const OURS: &str = "fencelock";

/// A goal, and what was measured.
pub(crate) struct Goal {
    pub(crate) text: String,
    pub(crate) measured: String,
    pub(crate) is_met: bool,
}

/// The goals whose figures are in the run.
pub(crate) fn goals(run: &Run) -> Vec<Goal> {
    let Some((one, many)) = uncontended() else { return Vec::new() };
    let one_task = "uncontended keys, one task";
    let many_tasks = "uncontended keys, 64 tasks";
    let readers = "256 readers, 1 % writers";
    let permits = "16 permits, 256 tasks";
    let mut goals = vec![at_least(run, (one_task, one), 0.95, "redis")];
    goals.push(at_least(run, (many_tasks, many), 0.9, "rslock"));
    goals.push(above_others(run, (many_tasks, many)));
    goals.push(at_least(run, (readers, contended(READERS)), 20.0, "redisson-read-write"));
    goals.push(writers(run));
    for name in ["redisson-expirable", "redisson-semaphore", "redis-semaphore-permits"] {
        goals.push(at_least(run, (permits, contended(PERMITS)), 10.0, name));
    }
    goals.push(local(run));
    goals.into_iter().flatten().collect()
}

/// One task, and many tasks, each on a key of its own.
fn uncontended() -> Option<(Cell, Cell)> {
    let mut cells = CELLS.into_iter().filter(|cell| cell.workload == Workload::Uncontended);
    cells.next().zip(cells.next())
}

/// The most tasks on one key.
fn contended(mode: LoadMode) -> Cell {
    Cell { workload: Workload::HotKey, processes: 4, tasks: 64, mode }
}

/// At least so many times the grants of another library.
fn at_least(run: &Run, (what, cell): (&str, Cell), times: f64, other: &str) -> Option<Goal> {
    let (ours, theirs) = (run.figures(OURS, cell)?, run.figures(other, cell)?);
    let ratio = ours.per_s / theirs.per_s;
    let other = title(other);
    let text = format!("{what}: at least {times} times {other}");
    Some(Goal { text, measured: format!("{ratio:.2}"), is_met: ratio >= times })
}

/// More than every other library except rslock, which has a goal of its own. The bare client is not a library.
fn above_others(run: &Run, (what, cell): (&str, Cell)) -> Option<Goal> {
    let ours = run.figures(OURS, cell)?.per_s;
    let others = KNOWN.iter().filter(|peer| peer.ours().is_none() && !["redis", "rslock"].contains(&peer.name));
    let rates = others.filter_map(|peer| Some((run.figures(peer.name, cell)?.per_s, peer.title)));
    let (fastest, name) = rates.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let ratio = ours / fastest;
    let (text, measured) = (format!("{what}: more than every other library"), format!("{ratio:.2} times {name}"));
    Some(Goal { text, measured, is_met: ratio > 1.0 })
}

fn writers(run: &Run) -> Option<Goal> {
    let figures = run.figures(OURS, contended(READERS))?;
    let ratio = longest_over_median(figures.writer_p50_us?, figures.writer_longest_us?);
    let text = "256 readers, 1 % writers: no writer waits for longer than 4 times the median writer";
    Some(Goal { text: text.to_owned(), measured: format!("{ratio:.2}"), is_met: ratio <= 4.0 })
}

fn local(run: &Run) -> Option<Goal> {
    let per_s = run.local_shared_per_s?;
    let text = "256 readers of one process: at least 1,000,000 grants/s";
    Some(Goal { text: text.to_owned(), measured: format!("{per_s:.0}"), is_met: per_s >= 1e6 })
}

#[expect(clippy::cast_precision_loss, reason = "seconds in microseconds")]
pub(crate) fn longest_over_median(median: u64, longest: u64) -> f64 {
    longest as f64 / median.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_of_all_goals_are_measured() {
        assert!(uncontended().is_some_and(|(one, many)| (one.all_tasks(), many.all_tasks()) == (1, 64)));
        for mode in [READERS, PERMITS] {
            assert!(CELLS.contains(&contended(mode)));
        }
    }
}
