use crate::census::Census;
use crate::crew::{Crew, Mark, Progress};
use crate::error::NotMeasured;
use crate::ground::Ground;
use crate::plan::Plan;
use crate::report::{Report, Sale};
use std::io;
use std::process::Command;

/// Puts the load on, and tells what came of it. `hire` makes the command of a worker; `watch` is told every now and then how
/// far the run is.
///
/// It blocks, for the warm-up and the span and a little more. Keys, files and processes of the run are gone when it returns;
/// another thread can end it by [`Crew::stop`].
///
/// # Errors
/// [`NotMeasured`]. A place that answers with errors during the run is a report with errors in it, and no error.
pub fn measure(
    plan: &Plan,
    crew: &Crew,
    hire: &dyn Fn() -> io::Result<Command>,
    watch: &dyn Fn(Progress),
) -> Result<Report, NotMeasured> {
    plan.check()?;
    let ground = Ground::prepare(plan)?;
    let jobs = plan.jobs(&ground.url, &ground.base, ground.shop());
    let mut census = Census::open(&ground.servers)?;
    let (mut before, mut after) = (None, None);
    let logs = crew.run(&jobs, hire, watch, &mut |mark| {
        let count = match mark {
            Mark::Begin => &mut before,
            Mark::End => &mut after,
        };
        *count = census.commands()?;
        Ok(())
    })?;
    let commands = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    let sale = ground.books().map(|books| books.read()).transpose()?;
    let sale = sale.map(|entries| Sale::of(plan.stock, &entries));
    Ok(Report::of(plan, &logs, commands, sale))
}
