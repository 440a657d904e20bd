use crate::args::Common;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// What the library tells goes to stderr, from warnings upwards; `-v` and `-vv` lower the threshold.
pub(crate) fn start(common: &Common) {
    let level = match common.verbose {
        // Lines of text between lines of JSON would be neither.
        _ if common.json => return,
        0 if common.quiet => LevelFilter::ERROR,
        0 => LevelFilter::WARN,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let mut filter = Targets::new().with_default(level.min(LevelFilter::INFO)).with_target("fencelock", level);
    if common.verbose == 0 {
        // Losses, and renewals that fail, are told by `run` itself, with what follows from them.
        filter = filter.with_target("fencelock::telemetry", LevelFilter::ERROR);
    }
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).without_time();
    tracing_subscriber::registry().with(lines).with(filter).init();
}
