//! The numbers of a run, as HTML tables.

use crate::checker::{Check, CheckResults, Violation};
use crate::fault::Fault;
use crate::history::{History, Op, Outcome};
use fencelock_lab::svg::escape;
use std::collections::BTreeSet;
use std::fmt::Write;

fn row(cells: &[String]) -> String {
    format!("<tr><td>{}</td></tr>\n", cells.join("</td><td>"))
}

fn table(head: &[&str], rows: &str) -> String {
    format!("<table><tr><th>{}</th></tr>\n{rows}</table>\n", head.join("</th><th>"))
}

pub(super) fn operations(history: &History) -> String {
    let mut rows = String::new();
    let of_holds = [Op::Acquire, Op::Downgrade, Op::Renew, Op::Release, Op::Lost, Op::Write, Op::Read];
    for op in of_holds.into_iter().chain([Op::Succeed, Op::Start, Op::Observe]) {
        let mine: Vec<_> = history.lines.iter().filter(|line| line.op == op).collect();
        let count = |result| mine.iter().filter(|line| line.result == result).count().to_string();
        let mut took: Vec<u64> = mine
            .iter()
            .filter(|line| line.result == Outcome::Ok)
            .map(|line| line.return_us.saturating_sub(line.invoke_us))
            .collect();
        took.sort_unstable();
        let at = |percent: usize| {
            let index = (took.len() * percent / 100).min(took.len().saturating_sub(1));
            took.get(index).map_or(String::new(), |us| format!("{}.{} ms", us / 1000, us % 1000 / 100))
        };
        // The renewal of a watchdog is observed late, a loss has no duration, and an observer waits for the next change.
        let times = if matches!(op, Op::Renew | Op::Lost | Op::Observe) {
            [String::new(), String::new()]
        } else {
            [at(50), at(99)]
        };
        let [p50, p99] = times;
        rows += &row(&[
            format!("{op:?}").to_lowercase(),
            count(Outcome::Ok),
            count(Outcome::Fail),
            count(Outcome::Info),
            p50,
            p99,
        ]);
    }
    table(&["operation", "done", "not done", "unknown", "p50", "p99"], &rows)
}

pub(super) fn faults(history: &History) -> String {
    let mut rows = String::new();
    for fault in Fault::ALL {
        let mine =
            history.lines.iter().filter(|line| line.op == Op::Fault && line.what.as_deref() == Some(fault.name()));
        let mine: Vec<_> = mine.collect();
        let Some(first) = mine.first() else { continue };
        let excuses = first.excuses.join(", ");
        // A fault of a cluster has a line for each key.
        let times: BTreeSet<u64> = mine.iter().map(|line| line.invoke_us).collect();
        rows += &row(&[fault.name().to_owned(), times.len().to_string(), excuses]);
    }
    table(&["fault", "times", "may violate"], &rows)
}

pub(super) fn checks(results: &CheckResults) -> String {
    let mut rows = String::new();
    for check in Check::ALL {
        let count = |of: &[Violation]| match of.iter().filter(|violation| violation.check == check).count() {
            0 => String::new(),
            count => count.to_string(),
        };
        let broken = results.broken_of(check);
        let mark = if broken == 0 { "<b class=\"good\">held</b>" } else { "<b class=\"bad\">broken</b>" };
        rows += &row(&[
            check.to_string(),
            check.guarantee().to_owned(),
            mark.to_owned(),
            count(&results.broken),
            count(&results.excused),
            count(&results.wanted),
        ]);
    }
    let head = ["check", "guarantee", "", "broken", "excused by a fault", "wanted by a control"];
    let mut text = table(&head, &rows);
    for violation in results.broken.iter().take(50) {
        let _ = writeln!(text, "<p class=\"bad\">{}</p>", escape(&violation.to_string()));
    }
    text
}
