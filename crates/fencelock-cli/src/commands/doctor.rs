use crate::context::{Context, may_colour, print};
use crate::exit::{Exit, Failure};
use crate::text::plain;
use anstyle::{AnsiColor, Style};
use fencelock::{BackendReport, Capabilities, Client, Feature, Finding, Level, ServerReport};
use serde_json::{Value, json};
use std::fmt::Write;

/// Checks the backend. `wants_report`: writes all that is known about it. `writes`: tries a lock, with this key or with one of its own.
pub(super) async fn doctor(
    wants_report: bool,
    writes: bool,
    key: Option<&str>,
    context: &Context,
) -> Result<Exit, Failure> {
    context
        .with(context.connect_to_inspect(), async |client| {
            // First, because the other findings include what it found.
            let tried = if writes {
                client.try_out(key).await?
            } else {
                vec![Finding::not_tried("--read-only writes nothing", "")]
            };
            let mut backend = client.diagnose().await;
            let findings = &mut backend.findings;
            findings.extend(tried);
            findings.extend(kinds(client.capabilities(), client.stores_completions()));
            let failed = findings.iter().any(|finding| finding.level == Level::Failure);
            if context.report.quiet {
                findings.retain(|finding| finding.level >= Level::Warning);
            }
            let answer = if wants_report {
                format!("{}\n", report(client, backend))
            } else if context.report.json {
                format!("{}\n", json!({ "backend": client.name(), "findings": described(findings) }))
            } else if context.report.quiet && findings.is_empty() {
                String::new()
            } else {
                format!("{}\n{}", plain(&client.name()), in_columns(findings, may_colour()))
            };
            print(&answer)?;
            Ok(if failed { Exit::Unreachable } else { Exit::Success })
        })
        .await
}

/// All that is known about a backend.
fn report(client: &Client, backend: BackendReport) -> Value {
    let options: serde_json::Map<_, _> =
        backend.options.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let has = client.capabilities().modes;
    let modes = [("exclusive", true), ("shared", has.shared), ("permits", has.permits)];
    let modes: Vec<_> = modes.into_iter().filter_map(|(name, has)| has.then_some(name)).collect();
    json!({
        "fencelock": env!("CARGO_PKG_VERSION"),
        "wire": backend.wire,
        "backend": client.name(),
        "servers": backend.servers.iter().map(server).collect::<Value>(),
        "options": options,
        "modes": modes,
        "findings": described(&backend.findings),
    })
}

fn server(server: &ServerReport) -> Value {
    let feature = |feature: &Feature| json!({ "feature": feature.name, "works": feature.works, "reason": given(&feature.reason) });
    json!({
        "node": server.node,
        "product": server.product,
        "version": server.version,
        "topology": server.topology.name(),
        "reason": server.failure,
        "features": server.features.iter().map(feature).collect::<Value>(),
    })
}

fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Which locks the backend has, and which of them it refuses.
fn kinds(backend: Capabilities, stores_completions: bool) -> Vec<Finding> {
    let kinds = [
        ("exclusive locks", true, ""),
        ("shared locks (--shared)", backend.modes.shared, "use exclusive locks, or a backend that has shared ones"),
        ("semaphores (--permits)", backend.modes.permits, "use slots (--slots)"),
        ("slots (--slots), several keys, elections (elect)", true, ""),
        ("once per window (--once-per)", stores_completions, "use a backend that has it"),
    ];
    let (has, refused): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|(_, has, _)| *has);
    let has = has.iter().map(|(kind, ..)| *kind).collect::<Vec<_>>().join(", ");
    let refused = refused.into_iter().map(|(kind, _, advice)| Finding::note("refused", kind, advice));
    [Finding::fine("modes", has)].into_iter().chain(refused).collect()
}

fn in_columns(findings: &[Finding], colours: bool) -> String {
    let width = findings.iter().map(|finding| plain(&finding.subject).chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { level, subject, text: seen, advice, .. } in findings {
        let colour = match level {
            Level::Fine => AnsiColor::Green,
            Level::Note => AnsiColor::Cyan,
            Level::Warning => AnsiColor::Yellow,
            Level::Failure => AnsiColor::Red,
        };
        let style = if colours { colour.on_default() } else { Style::new() };
        let _ = writeln!(text, "  {style}{level:<7}{style:#}  {:<width$}  {}", plain(subject), plain(seen));
        if !advice.is_empty() {
            let _ = writeln!(text, "  {:7}  {:width$}  -> {}", "", "", plain(advice));
        }
    }
    text
}

fn described(findings: &[Finding]) -> Value {
    let level = |level: Level| if level == Level::Failure { "failure".to_owned() } else { level.to_string() };
    let described = |Finding { level: found, subject, text, advice, .. }: &Finding| json!({ "level": level(*found), "subject": subject, "text": text, "advice": given(advice) });
    findings.iter().map(described).collect()
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
