//! The `fencelock` command: arguments, a plan, its run, an exit code.
//!
//! `args`, `values` and `parse` read the arguments, `mistakes` words their errors, `settings` reads the files, `plan` checks the arguments, and
//! `commands/` has one file for each command. For `run` and `elect`, `kill_policy` decides when the command must end, `supervisor` ends
//! it, `parent_death_watcher/` is the second process, and `descendants` finds what the command has started. `keeper/` is the second
//! process of `acquire --while-pid`, and `serve/` holds locks for other programs. `exit`, `report` and `json` are exit codes and output, `metrics_file` is what a collector reads.

mod args;
mod change;
mod child;
mod child_socket;
mod commands;
mod context;
mod descendants;
mod exit;
mod interrupt;
mod json;
mod keeper;
mod kill_policy;
mod logging;
mod metrics_file;
mod mistakes;
mod mode;
mod nesting;
mod not_found;
mod notes;
mod parent_death_watcher;
mod parse;
mod paths;
mod plan;
mod proc;
mod progress;
mod report;
mod secrets;
mod serve;
mod settings;
mod signals;
#[cfg(target_os = "linux")]
mod started;
mod stderr;
mod stdout;
mod supervisor;
mod terminal;
mod text;
mod values;

use crate::args::Arguments;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::report::Reporter;
use crate::settings::Settings;
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// The only exit of the program, except that by a signal of the terminal.
fn main() -> ExitCode {
    stderr::report_panics();
    if let Some(foreground) = parent_death_watcher::role() {
        return parent_death_watcher::run(foreground).into();
    }
    if keeper::role() {
        return keeper::run().into();
    }
    let settings = settings::load();
    match parse::parse(settings.as_ref().ok()) {
        Ok(arguments) => {
            let exit = execute(arguments, settings);
            interrupt::die_of(exit);
            exit.into()
        }
        Err(error) => {
            let report = Reporter { json: requests_json(std::env::args_os()), ..Reporter::default() };
            if error.use_stderr() {
                return report.reject(&error).into();
            }
            context::delivered(error.print()).map_or_else(|failure| report.exit_of(&failure), |_| Exit::Success).into()
        }
    }
}

/// Whether invalid arguments request JSON. Arguments of the command of `run` may follow
/// without a `--`, so this may match one of them.
fn requests_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

fn execute(arguments: Arguments, settings: Result<Settings, Failure>) -> Exit {
    logging::start(&arguments);
    let context = Context::new(&arguments.common, settings, !arguments.command.acquires());
    let ended = check_open_files().and_then(|()| block_on_main_thread(commands::execute(arguments, &context)));
    ended.and_then(|done| done).unwrap_or_else(|failure| context.report.exit_of(&failure))
}

/// What every command needs: with fewer, the runtime panics, or a wait for a server never ends.
pub(crate) const OPEN_FILES: usize = 24;

pub(crate) fn check_open_files() -> Result<(), Failure> {
    let pairs: std::io::Result<Vec<_>> = (0..OPEN_FILES / 2).map(|_| UnixStream::pair()).collect();
    let what = format!("open {OPEN_FILES} files at the same time, which it needs (raise ulimit -n)");
    pairs.map(drop).map_err(|error| Failure::system(&what, error))
}

/// Runs on the main thread: the kernel kills the command when the thread that started it ends, see [`child`].
pub(crate) fn block_on_main_thread<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("start", error))?;
    let done = runtime.block_on(work);
    // A thread blocked on a file or a name lookup must not delay the exit.
    runtime.shutdown_background();
    Ok(done)
}
