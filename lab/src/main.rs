//! `cargo run -p fencelock-lab`: searches one scheme or all of them, and prints the result.

use clap::Parser;
use clap::builder::PossibleValuesParser;
use fencelock_lab::{
    Fault, Faults, Lang, LockScheme, Property, PropertyResult, ReplayTarget, Replayed, SchemeResults, Trace, Who,
    catalog, diagram, replay, single_server, table,
};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// Wide enough for three clients and a server.
const CELLS: usize = 100;

/// Search well-known lock schemes for the shortest way to break them.
///
/// The search covers all orders of steps, crashes and delays. Without SCHEME it prints a table of all schemes, with SCHEME the steps of
/// a counterexample. With `--url` it replays the steps on a real Redis and compares every reply; it uses its own keys and removes them.
#[derive(Debug, Parser)]
struct Arguments {
    /// The scheme to show.
    #[arg(value_parser = PossibleValuesParser::new(catalog().iter().map(|scheme| scheme.id).collect::<Vec<_>>()), hide_possible_values = true)]
    scheme: Option<String>,
    /// The property to break.
    #[arg(long, requires = "scheme", value_parser = PossibleValuesParser::new(Property::ALL.map(Property::name)))]
    property: Option<String>,
    /// The fault that the counterexample must contain.
    #[arg(long, requires = "scheme", value_parser = PossibleValuesParser::new(Fault::ALL.map(Fault::name)))]
    fault: Option<String>,
    /// Show all counterexamples that were found.
    #[arg(long, requires = "scheme", conflicts_with_all = ["svg", "url"])]
    all: bool,
    /// Also draw the steps as SVG into FILE.
    #[arg(long, value_name = "FILE", requires = "scheme")]
    svg: Option<PathBuf>,
    /// The language of the output.
    #[arg(long, default_value = "en", value_parser = ["en", "zh"])]
    lang: String,
    /// Replay the steps on this Redis.
    #[arg(long, requires = "scheme")]
    url: Option<String>,
    /// A replica of the Redis of --url, for failover counterexamples: it is promoted, and then re-attached.
    #[arg(long, value_name = "URL", requires = "url")]
    replica: Option<String>,
    /// Milliseconds of a tick of the model on a real server; a lock lasts two ticks.
    #[arg(long, value_name = "MS", default_value_t = 100, requires = "url")]
    tick: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let shown = shown(&arguments).and_then(|text| match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("fencelock-lab: {reason}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn lang(&self) -> Lang {
        if self.lang == "zh" { Lang::Zh } else { Lang::En }
    }

    fn property(&self) -> Option<Property> {
        Property::ALL.into_iter().find(|property| self.property.as_deref() == Some(property.name()))
    }

    fn fault(&self) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| self.fault.as_deref() == Some(fault.name()))
    }
}

fn shown(wanted: &Arguments) -> Result<String, String> {
    let all = catalog().into_iter();
    let results = searched(all.filter(|scheme| wanted.scheme.as_deref().is_none_or(|id| id == scheme.id)));
    match &*results {
        [one] if wanted.scheme.is_some() => of_scheme(wanted, one),
        _ => {
            let no_color = std::env::var_os("NO_COLOR").is_some_and(|no| !no.is_empty());
            Ok(table(&results, wanted.lang(), io::stdout().is_terminal() && !no_color))
        }
    }
}

/// Searches schemes, each on a separate thread.
fn searched(schemes: impl Iterator<Item = LockScheme>) -> Vec<SchemeResults> {
    thread::scope(|scope| {
        let searches: Vec<_> = schemes.map(|scheme| scope.spawn(|| SchemeResults::of(scheme))).collect();
        let results = searches.into_iter().map(ScopedJoinHandle::join);
        results.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

fn of_scheme(wanted: &Arguments, results: &SchemeResults) -> Result<String, String> {
    let shown = results
        .chosen(wanted.property(), wanted.fault())
        .and_then(|(property, faults)| Trace::of(results, property, faults, wanted.lang()));
    let Some(trace) = shown else { return holds(wanted, results) };
    if let Some(file) = &wanted.svg {
        std::fs::write(file, diagram(&trace)).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    if let Some(url) = &wanted.url {
        return replayed(wanted, url, results, &trace);
    }
    let traces = if wanted.all { every(wanted, results) } else { vec![trace] };
    let shown: Vec<_> = traces.iter().map(|trace| trace.text(CELLS)).collect();
    Ok(if wanted.all { shown.join("\n\n") } else { shown.concat() + &others(results, &traces[0]) })
}

/// All counterexamples, or those to one property, or under one fault.
fn every(wanted: &Arguments, results: &SchemeResults) -> Vec<Trace> {
    let fits = |(p, faults, _): &(Property, Faults, usize)| {
        wanted.property().is_none_or(|property| property == *p)
            && wanted.fault().is_none_or(|fault| *faults == Some(fault).into())
    };
    let fitting = results.exhibits().into_iter().filter(fits);
    fitting.filter_map(|(property, faults, _)| Trace::of(results, property, faults, wanted.lang())).collect()
}

/// The other counterexamples of the scheme.
fn others(results: &SchemeResults, shown: &Trace) -> String {
    let lang = shown.lang();
    let exhibits = results.exhibits().into_iter();
    let rest: Vec<_> = exhibits.filter(|(p, faults, _)| (*p, *faults) != (shown.property, shown.faults)).collect();
    if rest.is_empty() {
        return String::new();
    }
    let mut text =
        format!("\n{}\n", lang.pick("Also broken (`--all` shows each):", "其他反例（加 `--all` 全部显示）："));
    for (property, faults, steps) in rest {
        let mut each = faults.iter();
        // Several break it where none does alone, so the property says enough.
        let chosen = match (each.next(), each.next()) {
            (Some(fault), None) => format!(" --fault {}", fault.name()),
            (Some(_), Some(_)) | (None, _) => String::new(),
        };
        let unit = lang.pick("steps", "步");
        let _ = writeln!(text, "  --property {}{chosen}  ({steps} {unit})", property.name());
    }
    text
}

fn holds(wanted: &Arguments, results: &SchemeResults) -> Result<String, String> {
    let (id, lang) = (results.scheme.id, wanted.lang());
    if let Some(fault) = wanted.fault().filter(|fault| !results.faults().any(|searched| searched == Some(*fault))) {
        return Err(match lang {
            Lang::En => format!("{id} is not searched with the fault {}", fault.name()),
            Lang::Zh => format!("方案 {id} 不涉及故障 {}", fault.name()),
        });
    }
    let mut text = format!("{id}{}{}\n", lang.pick(": ", "："), results.scheme.title.get(lang));
    let properties = Property::ALL.into_iter();
    for kept in properties.filter(|kept| wanted.property().is_none_or(|property| property == *kept)) {
        let label = kept.label(lang);
        let shown = match (results.result(kept), lang) {
            (PropertyResult::Holds { states }, Lang::En) => format!("  \"{label}\" holds in all {states} states"),
            (PropertyResult::Holds { states }, Lang::Zh) => format!("  “{label}”在全部 {states} 个状态中成立"),
            (PropertyResult::BreaksTogether { .. }, Lang::En) => {
                format!("  \"{label}\" is broken by several faults together, by none of them alone")
            }
            (PropertyResult::BreaksTogether { .. }, Lang::Zh) => {
                format!("  “{label}”在多种故障同时发生时会被打破，单独一种不会")
            }
            (PropertyResult::Breaks { .. }, Lang::En) => {
                format!("  \"{label}\" can be broken, but not by this fault alone")
            }
            (PropertyResult::Breaks { .. }, Lang::Zh) => format!("  “{label}”会被打破，但单凭这个故障不会"),
        };
        let _ = writeln!(text, "{shown}");
    }
    Ok(format!("{text}{}\n", results.scheme.advice.get(lang)))
}

/// Replays the steps on a real server; ^C ends it after it has removed its keys.
fn replayed(wanted: &Arguments, url: &str, results: &SchemeResults, trace: &Trace) -> Result<String, String> {
    single_server(url).map_err(|invalid| format!("--url: {invalid}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    runtime.spawn(async move { tokio::signal::ctrl_c().await.map(|()| stopped.store(true, Ordering::Relaxed)) });
    let tick = Duration::from_millis(wanted.tick);
    let target = ReplayTarget { replica: wanted.replica.clone(), tick, ..ReplayTarget::new(url) };
    let replayed = replay(results, trace.property, trace.faults, &target, &stop);
    let replayed = replayed.map_err(|reason| reason.text(trace.lang()))?;
    Ok(as_text(trace, &replayed))
}

fn as_text(trace: &Trace, replayed: &Replayed) -> String {
    let lang = trace.lang();
    let mut text = format!("{}{}{}\n{}\n\n", trace.scheme, lang.pick(": ", "："), trace.title, trace.headline());
    for (number, (row, answer)) in (1..).zip(trace.rows.iter().zip(&replayed.answers)) {
        let who = match row.who {
            Who::Client(client) => format!("P{}", client + 1),
            Who::Time => lang.pick("tick", "时间").to_owned(),
            Who::Servers => "Redis".to_owned(),
        };
        let cells: Vec<_> =
            [row.operation.as_str(), answer.as_str()].into_iter().filter(|cell| !cell.is_empty()).collect();
        let _ = writeln!(text, "{number:>3}  {who:<5} {}  [{}]", cells.join(" -> "), row.lock);
    }
    let (tick, breach) = (replayed.tick.as_millis(), &trace.breach);
    text + &match lang {
        Lang::En => format!("\nEvery reply of the server matches the model (a tick was {tick} ms): {breach}.\n"),
        Lang::Zh => format!("\n真实服务器的每一步应答都和模型一致（一拍为 {tick} 毫秒）：{breach}。\n"),
    }
}
