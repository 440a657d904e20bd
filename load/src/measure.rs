use crate::command_counter::CommandCounter;
use crate::error::NotMeasured;
use crate::plan::Plan;
use crate::report::{LoadReport, Sale};
use crate::run::{Mark, run};
use crate::workers::WorkerPool;
use crate::workspace::Workspace;
use std::io;
use std::process::Command;

/// Runs the load and reports the result. `spawn` returns the command that starts a worker.
///
/// Blocks for the warm-up, the span and a short time more. It removes all keys, files and processes of the run before
/// it returns. Another thread can stop it with [`WorkerPool::stop`].
///
/// # Errors
/// [`NotMeasured`]. Errors of the backend during the run are part of the report.
pub fn measure(
    plan: &Plan,
    pool: &WorkerPool,
    spawn: &dyn Fn() -> io::Result<Command>,
) -> Result<LoadReport, NotMeasured> {
    plan.check()?;
    let workspace = Workspace::prepare(plan)?;
    let jobs = plan.jobs(&workspace.url, &workspace.base, workspace.shop());
    let mut command_counter = CommandCounter::open(&workspace.servers)?;
    let (mut before, mut after, mut away) = (None, None, None);
    let logs = run(pool, &jobs, spawn, &mut |mark| {
        let count = match mark {
            Mark::Begin => &mut before,
            Mark::End => &mut after,
        };
        match command_counter.read() {
            Ok(counts) => *count = counts,
            // The workers may have failed only because of the unreachable servers.
            Err(error) => away = Some(error.to_string()),
        }
        Ok(())
    })?;
    let counts = before.zip(after).map(|(before, after)| after.since(before));
    let sale = workspace.stock_ledger().map(|ledger| ledger.read()).transpose()?;
    let sale = sale.map(|entries| Sale::of(plan.stock, &entries));
    let mut report = LoadReport::of(plan, &logs, counts, sale);
    if let Some(error) = away {
        report.errors += 1;
        report.first_error.get_or_insert(error);
    }
    Ok(report)
}
