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
mod json;
mod logging;
mod nesting;
mod notes;
mod plan;
mod progress;
mod report;
mod secrets;
mod signals;
mod span;
mod stdout;
mod terminal;
mod text;
mod wait_status;
mod ward;

use crate::args::Arguments;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Reporter;
use std::ffi::OsString;
use std::process::ExitCode;

/// The one place where the program ends.
fn main() -> ExitCode {
    if let Some(role) = guardian::role() {
        return guardian::guard(&role).into();
    }
    match args::parse() {
        Ok(arguments) => carry_out(arguments).into(),
        Err(told) if !told.use_stderr() => {
            let _ = told.print();
            Exit::Success.into()
        }
        Err(told) => {
            if asks_for_json(std::env::args_os()) {
                Reporter { json: true, ..Reporter::default() }.fail(&Failure::of_arguments(&told));
            } else {
                let _ = told.print();
            }
            Exit::Usage.into()
        }
    }
}

/// Whether an answer in JSON is wanted by arguments that cannot be read otherwise. Those of the command of `run` may follow
/// without a `--`, so one of them may be taken for ours.
fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

fn carry_out(arguments: Arguments) -> Exit {
    logging::start(&arguments);
    let context = Context::new(&arguments.common);
    let ended = on_this_thread(commands::carry_out(arguments, &context));
    ended.and_then(|done| done).unwrap_or_else(|failure| {
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
