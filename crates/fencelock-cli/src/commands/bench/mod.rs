//! How a place bears a load.

pub(crate) mod args;
mod live;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::text::plain;
use args::{Bench, Role};
use fencelock_lab::load::{NotMeasured, Report, measure, serve, try_out};
use fencelock_lab::workers::WorkerPool;
use live::Live;
use std::io;
use std::process::Command;
use std::sync::Arc;

/// Measures, and shows what came of it.
pub(super) async fn bench(wanted: Bench, context: &Context) -> Result<Exit, Failure> {
    if let Some(Role::Worker) = wanted.role {
        return worker();
    }
    let plan = wanted.plan(context.url()?);
    let mut signals = Signals::listen().map_err(|error| Failure::system("take signals", error))?;
    let name = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(signal.into()),
        name = try_out(&plan) => name?,
    };
    let pool = Arc::new(WorkerPool::default());
    let mut measured = {
        let (pool, report) = (Arc::clone(&pool), context.report);
        tokio::task::spawn_blocking(move || {
            let live = Live::new(report);
            measure(&plan, &pool, &this_program, &|progress| live.tell(progress))
        })
    };
    let measured = tokio::select! {
        biased;
        signal = signals.ending() => {
            pool.stop();
            // It removes its keys first.
            let _ = measured.await;
            return Ok(signal.into());
        }
        measured = &mut measured => measured,
    };
    let report = measured.map_err(|error| Failure::system("measure", error))?.map_err(|reason| refusal(&reason))?;
    show(&report, &name, context)
}

fn this_program() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "worker"]).env_remove("FENCELOCK_URL").env_remove("FENCELOCK_PASSWORD");
    Ok(command)
}

fn show(report: &Report, name: &str, context: &Context) -> Result<Exit, Failure> {
    let text = if context.report.json {
        let json = serde_json::to_string(report);
        json.map_err(|error| Failure::system("write JSON", error))? + "\n"
    } else {
        format!("{}\n{}", plain(name), plain_lines(&report.to_string()))
    };
    context.answer(&text)?;
    if report.sale.is_some_and(|sale| !sale.is_exact()) {
        return Err(Failure::new(Exit::Lost, "two were in at once: the books do not add up"));
    }
    match &report.first_error {
        None => Ok(Exit::Success),
        Some(first) => {
            Err(Failure::new(Exit::Unreachable, format!("errors meanwhile: {}, the first: {first}", report.errors)))
        }
    }
}

/// An error may repeat what a server said.
fn plain_lines(text: &str) -> String {
    text.lines().map(|line| plain(line) + "\n").collect()
}

fn refusal(reason: &NotMeasured) -> Failure {
    let exit = match reason {
        NotMeasured::Plan(_) | NotMeasured::Url(_) => Exit::Usage,
        NotMeasured::System { .. } => Exit::System,
        _ => Exit::Unreachable,
    };
    Failure::new(exit, reason)
}

/// One of the processes of a load.
fn worker() -> Result<Exit, Failure> {
    // Not on this thread, for it brings a runtime of its own.
    let done = std::thread::spawn(serve).join();
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(|reason| refusal(&reason))?;
    Ok(Exit::Success)
}
