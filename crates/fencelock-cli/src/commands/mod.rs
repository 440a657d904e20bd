//! One module per command.

mod acquire;
mod breaking;
pub(crate) mod claim;
mod config;
mod doctor;
pub(crate) mod elect;
mod in_the_way;
mod init;
pub(crate) mod list;
pub(crate) mod once;
mod pages;
mod renew;
mod resize;
pub(crate) mod run;
mod slots;
pub(crate) mod status;
#[cfg(feature = "top")]
pub(crate) mod top;
mod wait;

use crate::args::{Arguments, Command};
use crate::context::{Context, print};
use crate::exit::{Exit, Failure};
use crate::plan::Plan;
use crate::serve;
use clap::CommandFactory;

/// Runs the command given by the arguments.
pub(crate) async fn execute(arguments: Arguments, context: &Context) -> Result<Exit, Failure> {
    match arguments.command {
        Command::Run(run) => run::run(Plan::new(run), context).await,
        Command::Elect(elect) if elect.observe => elect::observe(&elect.name, context).await,
        Command::Elect(elect) => run::run(Plan::of_election(elect), context).await,
        Command::Acquire(acquire) => acquire::acquire(acquire, context).await,
        Command::Serve(wanted) => serve::serve(wanted, context).await,
        Command::Renew(renew) => renew::renew(renew, context).await,
        Command::Release(release) => renew::release(release, context).await,
        Command::Status(status) => status::status(status, context).await,
        // For a completion script. It is no option, because the scripts would offer that one too.
        Command::List(wanted) if std::env::var_os("_FENCELOCK_COMPLETE").is_some() => {
            list::complete(wanted.prefix, context.clone()).await
        }
        Command::List(wanted) => context.with_client(async |client| list::list(&wanted, client, context).await).await,
        #[cfg(feature = "top")]
        Command::Top(wanted) => top::top(wanted, context).await,
        Command::Wait(wait) => wait::wait(wait, context).await,
        Command::Break(wanted) => {
            context.with_client(async |client| breaking::break_lock(&wanted, client, context).await).await
        }
        Command::Resize(wanted) => {
            context.with_client(async |client| resize::resize(&wanted, client, context).await).await
        }
        Command::Once(wanted) => context.with_client(async |client| once::once(&wanted, client, context).await).await,
        Command::Config => config::config(context).await,
        Command::Init(init) => init::init(init, context).await,
        Command::Doctor { report, read_only, key } => doctor::doctor(report, !read_only, key.as_deref(), context).await,
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { command } => pages::man(command.as_deref()),
        Command::Help { command } => pages::help(&command),
        Command::Version => print(&Arguments::command().render_version()).map(|()| Exit::Success),
    }
}
