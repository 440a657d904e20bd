use crate::args::{Arguments, Command};
use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

/// What the library tells goes to stderr, from warnings upwards; `-v` and `-vv` lower the threshold.
pub(crate) fn start(arguments: &Arguments) {
    let common = &arguments.common;
    let level = match common.verbose {
        // Lines of text between lines of JSON would be neither.
        _ if common.json => return,
        0 if common.quiet || tells_all(&arguments.command) => LevelFilter::ERROR,
        0 => LevelFilter::WARN,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let mut filter = Targets::new().with_default(level.min(LevelFilter::INFO)).with_target("fencelock", level);
    if common.verbose == 0 {
        // Losses, and renewals that fail, are told by `run` itself, with what follows from them.
        filter = filter.with_target("fencelock::telemetry", LevelFilter::ERROR);
        // So is a server that takes no locks, by whoever waits for one.
        filter = filter.with_target("fencelock::trouble", LevelFilter::ERROR);
    }
    let format = Lines { plain: common.verbose == 0, full: Format::default().with_ansi(false).without_time() };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false).event_format(format);
    tracing_subscriber::registry().with(lines).with(filter).init();
}

/// Whether the answer has a line for whatever there is to warn of.
fn tells_all(command: &Command) -> bool {
    matches!(command, Command::Doctor | Command::Init(_))
}

/// Without `-v` a line is like all others of this program.
struct Lines {
    plain: bool,
    full: Format<Full, ()>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if !self.plain {
            return self.full.format_event(ctx, line, event);
        }
        let warning = if *event.metadata().level() == Level::ERROR { "" } else { "warning: " };
        write!(line, "fencelock: {warning}")?;
        ctx.field_format().format_fields(line.by_ref(), event)?;
        writeln!(line)
    }
}
