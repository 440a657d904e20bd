//! The generated part of the page.

use super::chart_spec::{ALL, ChartSpec};
use super::goals::goals;
use super::known::{known, title};
use super::page_table::{cell_text, contended, millis, permits, readers, uncontended};
use super::plan::{CELLS, Cell, PERMITS, READERS, READERS_ONLY};
use super::run::{Present, Run};
use crate::Failure;
use fencelock_load::{LoadMode, Workload};
use std::fmt::Write as _;

const BEGIN: &str = "<!-- peers: begin; written by scripts/bench-peers -->";
const END: &str = "<!-- peers: end -->";

/// Replaces the text between the marks of the page.
///
/// # Errors
/// If the page has no marks.
pub(crate) fn insert(page: &str, text: &str) -> Result<String, Failure> {
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| format!("the page has no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("the page has no {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{text}\n{END}{after}"))
}

/// The generated text of a run.
pub(crate) fn text(run: &Run) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut out, run);
    out
}

fn write_all(out: &mut String, run: &Run) -> std::fmt::Result {
    introduction(out, run)?;
    libraries(out, run)?;
    expectations(out, run)?;
    charts(out, run, LoadMode::Exclusive)?;
    for cell in of(Workload::HotKey, LoadMode::Exclusive).filter(|cell| cell.all_tasks() > 1) {
        let (tasks, processes) = (cell.all_tasks(), cell.processes);
        let title = format!("One key, {tasks} tasks in {processes} processes, empty critical section");
        contended(out, run, cell, &title)?;
    }
    for cell in of(Workload::ManyKeys, LoadMode::Exclusive) {
        let (tasks, processes) = (cell.all_tasks(), cell.processes);
        let title = format!("1000 keys, {tasks} tasks in {processes} processes");
        contended(out, run, cell, &title)?;
    }
    for cell in of(Workload::Uncontended, LoadMode::Exclusive) {
        uncontended(out, run, cell)?;
    }
    modes(out, run)
}

/// Locks that several clients hold together.
fn modes(out: &mut String, run: &Run) -> std::fmt::Result {
    charts(out, run, READERS)?;
    for mode in [READERS, READERS_ONLY] {
        for cell in of(Workload::HotKey, mode) {
            readers(out, run, cell)?;
        }
    }
    if let Some(per_s) = run.local_shared_per_s {
        writeln!(out, "\n256 readers of one process with all cores, without a runner: {per_s:.0} grants/s.")?;
    }
    charts(out, run, PERMITS)?;
    for cell in of(Workload::HotKey, PERMITS) {
        permits(out, run, cell)?;
    }
    Ok(())
}

fn of(workload: Workload, mode: LoadMode) -> impl Iterator<Item = Cell> {
    CELLS.into_iter().filter(move |cell| cell.workload == workload && cell.mode == mode)
}

fn introduction(out: &mut String, run: &Run) -> std::fmt::Result {
    let (span, warm_up) = (millis(run.effort.span_ms), millis(run.effort.warm_up_ms));
    let (machine, when) = (&run.machine, &run.when);
    if run.effort.is_quick() {
        writeln!(out, "**A quick run on a busy machine, as a test: do not quote these numbers.**\n")?;
    }
    writeln!(out, "Measured with {machine}, {when}; {span} for each figure, after")?;
    writeln!(out, "{warm_up} of warm-up (Redisson: 3 s more, for its compiler).\n")
}

fn libraries(out: &mut String, run: &Run) -> std::fmt::Result {
    writeln!(out, "| library | installed | how its waiters wait | sold under the lock |\n|---|---|---|---|")?;
    for (peer, present) in run.present.iter().filter_map(|present| Some((known(&present.name)?, present))) {
        writeln!(out, "| {} | {} | {} | {} |", peer.title, present.version, peer.waiting, sale(present))?;
    }
    if !run.absent.is_empty() {
        writeln!(out, "\nNot measured, because it could not be installed:\n")?;
        for absent in &run.absent {
            writeln!(out, "- {}: {}", title(&absent.name), absent.why)?;
        }
    }
    Ok(())
}

fn sale(present: &Present) -> String {
    match &present.sale {
        None => "-".to_owned(),
        Some(Ok(sale)) if sale.is_exact() => format!("{}, exactly", sale.sold),
        Some(Ok(sale)) => {
            format!("**{}, {} of them unknown to the stock: it does not exclude**", sale.sold, sale.oversold)
        }
        Some(Err(why)) => format!("failed: {}", cell_text(why)),
    }
}

fn expectations(out: &mut String, run: &Run) -> std::fmt::Result {
    let goals = goals(run);
    if goals.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n| goal | measured | |\n|---|---:|---|")?;
    for goal in goals {
        let result = if goal.is_met { "met" } else { "**MISSED**" };
        writeln!(out, "| {} | {} | {result} |", goal.text, goal.measured)?;
    }
    Ok(())
}

fn charts(out: &mut String, run: &Run, mode: LoadMode) -> std::fmt::Result {
    let has_data = |chart: &ChartSpec| chart.mode == mode && !chart.lines(run).is_empty();
    for chart in ALL.into_iter().filter(has_data) {
        writeln!(out, "\n![{}]({})", chart.shows, chart.file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_marks_is_replaced() {
        let page = format!("head\n{BEGIN}\nold\n{END}\nfoot\n");
        let page = insert(&page, "new\n").unwrap();
        assert_eq!(page, format!("head\n{BEGIN}\n\nnew\n\n{END}\nfoot\n"));
        assert_eq!(insert(&page, "new\n").unwrap(), page);
        assert!(insert("no marks", "new").is_err());
    }
}
