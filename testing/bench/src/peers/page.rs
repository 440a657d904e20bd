//! The generated page.

use super::plan::{CELLS, Cell};
use super::run::Run;
use fencelock_load::{LoadReport, Sale, Workload};
use std::fmt::{Result, Write as _};

const HEAD: &str = "# fencelock and other libraries, measured\n\n`./scripts/bench-peers` writes this page. \
                    [How to read it](../performance.md#compared-with-other-libraries)\n\n";

/// The text of a run.
pub(crate) fn text(run: &Run) -> String {
    let mut out = HEAD.to_owned();
    // Writing to a string cannot fail.
    let _ = write(&mut out, run);
    out
}

fn write(out: &mut String, run: &Run) -> Result {
    let Run { when, machine, effort, .. } = run;
    if effort.is_quick {
        writeln!(out, "**A quick run on a busy machine, as a test: do not quote these numbers.**\n")?;
    }
    writeln!(out, "Measured with {machine}, {when}; {:?} for each figure, after", effort.span)?;
    writeln!(out, "{:?} of warm-up (Redisson: 3 s more, for its compiler).\n", effort.warm_up)?;
    writeln!(out, "| library | installed | how its waiters wait | sold under the lock |\n|---|---|---|---|")?;
    for (peer, version, sale) in &run.present {
        writeln!(out, "| {} | {version} | {} | {} |", peer.title, peer.waiting, sold(sale))?;
    }
    if !run.absent.is_empty() {
        writeln!(out, "\nNot measured, because it could not be installed:\n")?;
        for (peer, why) in &run.absent {
            writeln!(out, "- {}: {why}", peer.title)?;
        }
    }
    CELLS.into_iter().try_for_each(|cell| table(out, run, cell))?;
    let shared = run.local_shared_per_s;
    writeln!(out, "\n256 readers of one process with all cores, without a runner: {shared:.0} grants/s.")
}

fn sold(sale: &std::result::Result<Sale, String>) -> String {
    match sale {
        Ok(Sale { sold, oversold: 0, .. }) => format!("{sold}, exactly"),
        Ok(sale) => {
            format!("**{}, {} of them unknown to the stock: it does not exclude**", sale.sold, sale.oversold)
        }
        Err(why) => format!("failed: {}", cell_text(why)),
    }
}

/// One row for each library, with its rate and the ratio to that of fencelock; then the failures. Nothing if no library was
/// measured.
fn table(out: &mut String, run: &Run, cell: Cell) -> Result {
    let rows = || run.measured.iter().filter(|(_, of, _)| *of == cell).map(|(peer, _, report)| (peer, report));
    let Some(ours) = rows().next().map(|(_, report)| report.as_ref().map_or(f64::NAN, |report| report.grants_per_s))
    else {
        return Ok(());
    };
    let (tasks, processes) = (cell.processes * cell.tasks, cell.processes);
    let of = match cell.workload {
        Workload::Uncontended => "Uncontended keys",
        Workload::ManyKeys => "1000 keys",
        Workload::HotKey | Workload::FlashSale => "One key, empty critical section",
    };
    writeln!(out, "\n**{of}: {tasks} tasks in {processes} processes**\n")?;
    writeln!(out, "| library | grants/s | of fencelock's | wait p50 | p99 | longest | Jain | tasks without a grant |")?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|")?;
    let mut failed = Vec::new();
    for (peer, report) in rows() {
        let name = peer.title;
        match report {
            Ok(report) => {
                writeln!(
                    out,
                    "| {name} | {:.0} | {:.2} | {} |",
                    report.grants_per_s,
                    report.grants_per_s / ours,
                    waits(report)
                )?;
                if let Some(error) = &report.first_error {
                    failed.push(format!("{name}: {} errors, the first: {}", report.errors, cell_text(error)));
                }
            }
            Err(why) => failed.push(format!("{name} was not measured: {}", cell_text(why))),
        }
    }
    if !failed.is_empty() {
        writeln!(out)?;
    }
    failed.iter().try_for_each(|line| writeln!(out, "- {line}"))
}

fn waits(report: &LoadReport) -> String {
    let Some((wait, fairness)) = report.wait_us.zip(report.fairness) else {
        return format!("- | - | - | - | {}", report.processes * report.tasks);
    };
    let [p50, p99, longest] = [wait.p50, wait.p99, wait.max].map(micros);
    format!("{p50} | {p99} | {longest} | {:.3} | {}", fairness.jain_tasks, fairness.empty_handed)
}

/// A single line, without characters that end a table cell.
fn cell_text(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[expect(clippy::cast_precision_loss, reason = "seconds in microseconds")]
fn micros(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} us"),
        1000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}
