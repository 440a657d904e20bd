use crate::load::command_counter::CommandCounter;
use crate::load::error::NotMeasured;
use crate::load::plan::Plan;
use crate::load::report::{Report, Sale};
use crate::load::run::{Mark, Progress, run};
use crate::load::workspace::Workspace;
use crate::workers::WorkerPool;
use std::io;
use std::process::Command;

/// Puts the load on, and tells what came of it. `spawn` makes the command of a worker; `watch` is told every now and then how
/// far the run is.
///
/// It blocks, for the warm-up and the span and a little more. Keys, files and processes of the run are gone when it returns;
/// another thread can end it by [`WorkerPool::stop`].
///
/// # Errors
/// [`NotMeasured`]. A place that answers with errors during the run is a report with errors in it, and no error.
pub fn measure(
    plan: &Plan,
    pool: &WorkerPool,
    spawn: &dyn Fn() -> io::Result<Command>,
    watch: &dyn Fn(Progress),
) -> Result<Report, NotMeasured> {
    plan.check()?;
    let workspace = Workspace::prepare(plan)?;
    let jobs = plan.jobs(&workspace.url, &workspace.base, workspace.shop());
    let mut command_counter = CommandCounter::open(&workspace.servers)?;
    let (mut before, mut after, mut away) = (None, None, None);
    let logs = run(pool, &jobs, spawn, watch, &mut |mark| {
        let count = match mark {
            Mark::Begin => &mut before,
            Mark::End => &mut after,
        };
        match command_counter.commands() {
            Ok(commands) => *count = commands,
            // The workers may only have waited for it.
            Err(error) => away = Some(error.to_string()),
        }
        Ok(())
    })?;
    let commands = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    let sale = workspace.books().map(|books| books.read()).transpose()?;
    let sale = sale.map(|entries| Sale::of(plan.stock, &entries));
    let mut report = Report::of(plan, &logs, commands, sale);
    if let Some(error) = away {
        report.errors += 1;
        report.first_error.get_or_insert(error);
    }
    Ok(report)
}
