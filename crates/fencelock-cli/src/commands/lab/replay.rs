use super::args::Lab;
use crate::context::{Context, print};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::Signals;
use fencelock_lab::{Lang, NotReplayed, ReplayTarget, Replayed, SchemeResults, Trace, Who};
use serde_json::json;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Replays the steps on a real server, and prints its replies.
pub(super) async fn replay(
    wanted: &Lab,
    url: &str,
    results: &SchemeResults,
    trace: &Trace,
    context: &Context,
) -> Result<Exit, Failure> {
    let site = ReplayTarget { replica: wanted.replica.clone(), tick: wanted.tick, ..ReplayTarget::new(url) };
    let mut signals = Signals::listen().map_err(|error| Failure::system("handle signals", error))?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut work = {
        let (results, stop, what) = (results.clone(), Arc::clone(&stop), (trace.property, trace.faults));
        tokio::task::spawn_blocking(move || fencelock_lab::replay(&results, what.0, what.1, &site, &stop))
    };
    let done = tokio::select! {
        biased;
        signal = signals.ending() => {
            stop.store(true, Ordering::Relaxed);
            // It removes its keys first.
            signals.let_finish(work, signal).await;
            return Ok(signal.into());
        }
        done = &mut work => done,
    };
    match done.map_err(|error| Failure::system("replay", error))? {
        Ok(replayed) => {
            print(&if context.report.json { as_json(trace, &replayed) } else { as_text(trace, &replayed) })?;
            Ok(Exit::Success)
        }
        Err(reason @ (NotReplayed::Holds | NotReplayed::NeedsReplica | NotReplayed::NoReplica(_))) => {
            Err(Failure::new(Exit::Usage, reason.text(trace.lang())))
        }
        Err(reason) => Err(Failure::new(Exit::Unreachable, reason.text(trace.lang()))),
    }
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
    let tick = replayed.tick.as_millis();
    let cells = match lang {
        Lang::En => {
            format!("\nEvery reply of the server matches the model (a tick was {tick} ms): {}.\n", trace.breach)
        }
        Lang::Zh => {
            format!("\n真实服务器的每一步应答都和模型一致（一拍为 {tick} 毫秒）：{}。\n", trace.breach)
        }
    };
    text + &cells
}

fn as_json(trace: &Trace, replayed: &Replayed) -> String {
    let mut value = trace.json();
    value["replayed"] = json!({
        "tick_ms": u64::try_from(replayed.tick.as_millis()).unwrap_or(u64::MAX),
        "answers": replayed.answers,
    });
    format!("{value:#}\n")
}
