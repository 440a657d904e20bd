//! Measures a backend under load.

pub(crate) mod args;
mod progress_bar;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::text::plain;
use args::{Bench, Role};
use fencelock_load::workers::WorkerPool;
use fencelock_load::{LoadReport, NotMeasured, measure, preflight, serve};
use progress_bar::MeasureProgress;
use std::io;
use std::process::Command;
use std::sync::Arc;

/// Runs the measurement, and prints the report.
pub(super) async fn bench(wanted: Bench, context: &Context) -> Result<Exit, Failure> {
    if let Some(Role::Worker) = wanted.role {
        return worker();
    }
    let shares = !wanted.no_sharing && wanted.tasks > 1;
    let plan = wanted.plan(context.url()?);
    let mut signals = Signals::listen().map_err(|error| Failure::system("handle signals", error))?;
    let name = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(signal.into()),
        name = preflight(&plan) => name?,
    };
    let pool = Arc::new(WorkerPool::default());
    let mut measured = {
        let (pool, report) = (Arc::clone(&pool), context.report);
        tokio::task::spawn_blocking(move || {
            let progress_bar = MeasureProgress::new(report);
            measure(&plan, &pool, &this_program, &|progress| progress_bar.update(progress))
        })
    };
    let measured = tokio::select! {
        biased;
        signal = signals.ending() => {
            pool.stop();
            // It removes its keys first.
            signals.let_finish(measured, signal).await;
            return Ok(signal.into());
        }
        measured = &mut measured => measured,
    };
    let report = measured.map_err(|error| Failure::system("measure", error))?.map_err(|reason| refusal(&reason))?;
    show(&report, &name, shares, context)
}

fn this_program() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "worker"]).env_remove("FENCELOCK_URL").env_remove("FENCELOCK_PASSWORD");
    Ok(command)
}

fn show(report: &LoadReport, name: &str, shares: bool, context: &Context) -> Result<Exit, Failure> {
    let text = if context.report.json {
        let json = serde_json::to_string(report);
        json.map_err(|error| Failure::system("write JSON", error))? + "\n"
    } else {
        let sharing = if shares { ", leases are shared by the tasks of a process (see --no-sharing)" } else { "" };
        format!("{}{sharing}\n{}", plain(name), plain_lines(&report.to_string()))
    };
    context.answer(&text)?;
    if report.sale.is_some_and(|sale| !sale.is_exact()) {
        return Err(Failure::new(Exit::Lost, "two holders overlapped: the stock does not match the sales"));
    }
    if report.audit.is_some_and(|audit| audit.conflicts > 0) {
        return Err(Failure::new(Exit::Lost, "two holders were in conflict"));
    }
    match &report.first_error {
        None => Ok(Exit::Success),
        Some(first) => Err(Failure::new(Exit::Unreachable, format!("errors: {}, the first: {first}", report.errors))),
    }
}

/// An error may contain text of a server.
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

/// Runs a worker process.
fn worker() -> Result<Exit, Failure> {
    // On another thread, because it has its own runtime.
    let done = std::thread::spawn(serve).join();
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(|reason| refusal(&reason))?;
    Ok(Exit::Success)
}
