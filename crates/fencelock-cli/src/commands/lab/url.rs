//! The URL of the server for the lab.

use crate::args::Arguments;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::secrets;
use clap::CommandFactory;
use clap::parser::ValueSource;
use fencelock_lab::single_server;

/// `--url` if it was given on the command line, not by the environment. It must name one Redis server.
pub(super) fn url_of_command_line() -> Result<Option<String>, Failure> {
    let Some(url) = said_url() else { return Ok(None) };
    let url = secrets::complete(url)?;
    single_server(&url).map_err(|invalid| Failure::new(Exit::Usage, format!("--url: {invalid}")))?;
    Ok(Some(url))
}

fn said_url() -> Option<String> {
    let matches = Arguments::command().try_get_matches_from(std::env::args_os()).ok()?;
    let said = matches.value_source("url") == Some(ValueSource::CommandLine);
    if said { matches.get_one("url").cloned() } else { None }
}
