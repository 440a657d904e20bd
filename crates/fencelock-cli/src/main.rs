//! The `fencelock` command: arguments, a plan, its run, an exit code.

mod args;
mod child;
mod commands;
mod context;
mod custody;
mod descendants;
mod exit;
mod failure;
mod guardian;
mod logging;
mod nesting;
mod plan;
mod progress;
mod report;
mod secrets;
mod signals;
mod span;
mod terminal;
mod text;
mod wait_status;
mod ward;

use crate::args::Arguments;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use std::process::ExitCode;

/// The one place where the program ends.
fn main() -> ExitCode {
    if let Some(role) = guardian::role() {
        return guardian::guard(&role).into();
    }
    match args::parse() {
        Ok(arguments) => carry_out(arguments).into(),
        Err(told) => {
            let _ = told.print();
            let exit = if told.use_stderr() { Exit::Usage } else { Exit::Success };
            exit.into()
        }
    }
}

fn carry_out(arguments: Arguments) -> Exit {
    logging::start(&arguments);
    let context = Context::new(&arguments.common);
    let ended = on_this_thread(commands::carry_out(arguments, &context));
    ended.flatten().unwrap_or_else(|failure| {
        context.report.fail(&failure);
        failure.exit
    })
}

/// Everything runs on the main thread: a command dies with the thread that started it, see [`child`].
fn on_this_thread<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("start", error))?;
    let done = runtime.block_on(work);
    // A thread that waits for a file or a name must not keep the program from ending.
    runtime.shutdown_background();
    Ok(done)
}
