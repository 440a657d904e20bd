use crate::args::{Arguments, Command};
use crate::stderr::Stderr;
use crate::text::plain;
use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

/// Writes library events to stderr, from warnings upwards; `-v` and `-vv` lower the threshold.
pub(crate) fn start(arguments: &Arguments) {
    let common = &arguments.common;
    let level = match common.verbose {
        // Log lines would corrupt the JSON output, or the screen.
        _ if common.json || arguments.command.has_screen() => return,
        // The result of the command includes all warnings.
        0 if common.quiet || matches!(arguments.command, Command::Doctor { .. } | Command::Init(_)) => {
            LevelFilter::ERROR
        }
        0 => LevelFilter::WARN,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let mut filter = Targets::new().with_default(level.min(LevelFilter::INFO)).with_target("fencelock", level);
    if common.verbose == 0 {
        if matches!(arguments.command, Command::Serve(_)) {
            // Sessions wait for each other: that is no mistake in this program.
            filter = filter.with_target("fencelock::driver::key_cell", LevelFilter::ERROR);
        } else {
            // `run` reports losses and failed renewals itself, with their consequences.
            filter = filter.with_target("fencelock::telemetry", LevelFilter::ERROR);
            // Commands that wait report unreachable servers themselves.
            filter = filter.with_target("fencelock::trouble", LevelFilter::ERROR);
        }
        if !arguments.command.acquires() {
            // A user that only looks needs no messages of the server.
            filter = filter.with_target("fencelock::holding", LevelFilter::ERROR);
        }
    }
    let format = Lines { plain: common.verbose == 0, full: Format::default().with_ansi(false).without_time() };
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Stderr).with_ansi(false).event_format(format);
    tracing_subscriber::registry().with(lines).with(filter).init();
}

/// Without `-v`, a log line has the format of other messages. Fields may come from a server or from another
/// client, so control characters are escaped.
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
        let mut text = String::new();
        if self.plain {
            let warning = if *event.metadata().level() == Level::ERROR { "" } else { "warning: " };
            let mut sentence = Sentence::default();
            event.record(&mut sentence);
            write!(text, "fencelock: {warning}{sentence}")?;
        } else {
            self.full.format_event(ctx, Writer::new(&mut text), event)?;
        }
        writeln!(line, "{}", plain(text.trim_end_matches('\n')))
    }
}

/// The message of an event, with the fields that it does not repeat: `in quarantine (node redis://a)`.
#[derive(Default)]
struct Sentence {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields.iter().filter(|(_, value)| !self.message.contains(value.as_str()));
        let fields: Vec<_> = fields.map(|(name, value)| format!("{} {value}", name.replace('_', " "))).collect();
        f.write_str(&self.message)?;
        if fields.is_empty() { Ok(()) } else { write!(f, " ({})", fields.join(", ")) }
    }
}

impl Visit for Sentence {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Debug, Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(verbose: bool, log: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let format = Lines { plain: !verbose, full: Format::default().with_ansi(false).without_time() };
        let writer = buffer.clone();
        let lines =
            tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(false).event_format(format);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), log);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn fields_that_the_message_does_not_repeat_follow_it() {
        let text = logged(false, || {
            let why = "in use";
            tracing::warn!(node = "redis://a:1", held_for = ?std::time::Duration::from_secs(2), key = %"k", "k is refused: {why}");
        });
        assert_eq!(text, "fencelock: warning: k is refused: in use (node redis://a:1, held for 2s)\n");
    }

    #[test]
    fn control_characters_in_fields_are_escaped() {
        let hostile = "a\x1b[2J\u{9b}1m\r\nfencelock: the lock is yours";
        for verbose in [false, true] {
            let text = logged(verbose, || {
                let span = tracing::info_span!("claim", label = %hostile);
                let _entered = span.enter();
                tracing::warn!(owner = %hostile, debug = ?hostile, text = hostile, "message of {hostile}");
            });
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(text.ends_with('\n') && !text.trim_end().chars().any(char::is_control), "{text:?}");
            assert!(text.contains("fencelock: the lock is yours"), "{text:?}");
        }
    }
}
