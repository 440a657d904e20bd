use crate::context::{Context, may_colour, print};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::text::plain;
use anstyle::{AnsiColor, Style};
use fencelock::{Finding, Level, Mode, Modes};
use serde_json::{Value, json};
use std::fmt::Write;

/// Checks the backend.
pub(super) async fn doctor(context: &Context) -> Result<Exit, Failure> {
    context
        .with(context.connect_to_inspect(), async |client| {
            let mut findings = client.diagnose().await;
            findings.push(modes(client.capabilities().modes));
            let failed = findings.iter().any(|finding| finding.level == Level::Failure);
            if context.report.quiet {
                findings.retain(|finding| finding.level >= Level::Warning);
            }
            let answer = if context.report.json {
                let findings: Value = findings.iter().map(describe).collect();
                format!("{}\n", json!({ "place": client.name(), "findings": findings }))
            } else if context.report.quiet && findings.is_empty() {
                String::new()
            } else {
                format!("{}\n{}", plain(&client.name()), in_columns(&findings, may_colour()))
            };
            print(&answer)?;
            Ok(if failed { Exit::Unreachable } else { Exit::Success })
        })
        .await
}

/// Which locks the place has.
fn modes(modes: Modes) -> Finding {
    let permits = Mode::permits(1, 1).is_ok_and(|permits| modes.has(permits));
    let (shared, permits) = (modes.has(Mode::Shared), permits);
    let known = [(true, "exclusive locks"), (shared, "shared locks (--shared)"), (permits, "semaphores (--permits)")];
    let text: Vec<_> = known.into_iter().filter(|(has, _)| *has).map(|(_, name)| name).collect();
    Finding::fine("modes", text.join(", "))
}

fn in_columns(findings: &[Finding], colours: bool) -> String {
    let width = findings.iter().map(|finding| plain(&finding.subject).chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { level, subject, text: seen, advice, .. } in findings {
        let subject = plain(subject);
        let style = if colours { style(*level) } else { Style::new() };
        let _ = writeln!(text, "  {style}{level:<7}{style:#}  {subject:<width$}  {}", plain(seen));
        if !advice.is_empty() {
            let _ = writeln!(text, "  {:7}  {:width$}  -> {}", "", "", plain(advice));
        }
    }
    text
}

fn style(level: Level) -> Style {
    match level {
        Level::Fine => AnsiColor::Green.on_default(),
        Level::Note => AnsiColor::Cyan.on_default(),
        Level::Warning => AnsiColor::Yellow.on_default(),
        Level::Failure => AnsiColor::Red.on_default().bold(),
    }
}

fn describe(finding: &Finding) -> Value {
    let level = match finding.level {
        Level::Fine => "ok",
        Level::Note => "note",
        Level::Warning => "warning",
        Level::Failure => "failure",
    };
    let advice = (!finding.advice.is_empty()).then_some(&finding.advice);
    json!({ "level": level, "subject": finding.subject, "text": finding.text, "advice": advice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_below_its_finding() {
        let findings = [
            Finding::fine("scripts", "work"),
            Finding::new(Level::Warning, "eviction", "allkeys-lru", "set noeviction"),
        ];
        assert_eq!(
            in_columns(&findings, false),
            "  ok       scripts   work\n  warning  eviction  allkeys-lru\n                     -> set noeviction\n"
        );
    }
}
