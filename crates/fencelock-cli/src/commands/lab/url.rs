//! The URL of the server for the lab.

use crate::args::Arguments;
use crate::exit::Exit;
use crate::failure::Failure;
use clap::CommandFactory;
use clap::parser::ValueSource;

/// `--url` if it was given on the command line, not by the environment. It must name one Redis server.
pub(super) fn url_of_command_line() -> Result<Option<String>, Failure> {
    let Some(url) = said_url() else { return Ok(None) };
    if ["redis://", "rediss://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Ok(Some(url));
    }
    Err(Failure::new(Exit::Usage, "--url: the lab needs a single Redis: redis://HOST[:PORT][/DB] or rediss://..."))
}

fn said_url() -> Option<String> {
    let matches = Arguments::command().try_get_matches_from(std::env::args_os()).ok()?;
    let said = matches.value_source("url") == Some(ValueSource::CommandLine);
    if said { matches.get_one("url").cloned() } else { None }
}
