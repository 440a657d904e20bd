use super::figures::Figures;
use super::known::{KNOWN, Peer};
use super::plan::{CELLS, Cell};
use super::run::{Present, Run};
use crate::Failure;
use fencelock_lab::load::Workload;
use std::fmt::Write as _;

const BEGIN: &str = "<!-- peers: begin; written by scripts/bench-peers -->";
const END: &str = "<!-- peers: end -->";

/// The library that the others are compared with.
const MEASURE: &str = "fencelock";

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
    if run.effort.is_quick() {
        writeln!(out, "**A quick run on a busy machine, as a test: do not quote these numbers.**\n")?;
    }
    let span = millis(run.effort.span_ms);
    writeln!(out, "Measured with {}, {}; {span} for each figure, after", run.machine, run.when)?;
    writeln!(out, "{} of warm-up (Redisson: 3 s more, for its compiler).\n", millis(run.effort.warm_up_ms))?;
    who(out, run)?;
    for (file, what) in
        [("throughput", "grants per second"), ("p99", "99th percentile of the waits"), ("fairness", "fairness")]
    {
        writeln!(out, "\n![One key, {what} against the number of tasks](benchmarks/{file}.svg)")?;
    }
    for cell in CELLS.into_iter().filter(|cell| cell.workload == Workload::HotKey && cell.all_tasks() > 1) {
        let title =
            format!("One key, {} tasks in {} processes, empty critical section", cell.all_tasks(), cell.processes);
        contended(out, run, cell, &title)?;
    }
    for cell in CELLS.into_iter().filter(|cell| cell.workload == Workload::ManyKeys) {
        let title = format!("1000 keys, {} tasks in {} processes", cell.all_tasks(), cell.processes);
        contended(out, run, cell, &title)?;
    }
    uncontended(out, run)
}

fn who(out: &mut String, run: &Run) -> std::fmt::Result {
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
        Ok(sale) if sale.is_exact() => format!("{}, exactly", sale.sold),
        Ok(sale) => format!("**{}, {} of them unknown to the stock: it does not exclude**", sale.sold, sale.oversold),
        Err(why) => format!("failed: {}", cell_text(why)),
    }
}

fn contended(out: &mut String, run: &Run, cell: Cell, title: &str) -> std::fmt::Result {
    writeln!(out, "\n**{title}**\n")?;
    writeln!(out, "| library | grants/s | of fencelock's | wait p50 | p99 | longest | Jain | tasks without a grant |")?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|")?;
    rows(out, run, cell, |figures, ratio| {
        let jain = figures.jain.map_or_else(|| "-".into(), |jain| format!("{jain:.3}"));
        format!(
            "{:.0} | {ratio} | {} | {} | {} | {jain} | {}",
            figures.per_s,
            micros(figures.p50_us),
            micros(figures.p99_us),
            micros(figures.longest_us),
            figures.starved
        )
    })
}

fn uncontended(out: &mut String, run: &Run) -> std::fmt::Result {
    for cell in CELLS.into_iter().filter(|cell| cell.workload == Workload::Uncontended) {
        let many = if cell.all_tasks() == 1 {
            "one task".into()
        } else {
            format!("{} tasks in {} processes", cell.all_tasks(), cell.processes)
        };
        writeln!(out, "\n**Uncontended keys, {many}**\n")?;
        writeln!(out, "| library | cycles/s | of fencelock's | acquire p50 | p99 |\n|---|---:|---:|---:|---:|")?;
        rows(out, run, cell, |figures, ratio| {
            format!("{:.0} | {ratio} | {} | {}", figures.per_s, micros(figures.p50_us), micros(figures.p99_us))
        })?;
    }
    Ok(())
}

/// One row for each library; then the failures.
fn rows(out: &mut String, run: &Run, cell: Cell, row: impl Fn(&Figures, String) -> String) -> std::fmt::Result {
    let ours = run.figures(MEASURE, cell).map(|figures| figures.per_s).filter(|per_s| *per_s > 0.0);
    let mut failed = Vec::new();
    for measured in run.measured.iter().filter(|measured| measured.cell == cell) {
        match &measured.figures {
            Ok(figures) => {
                let ratio = ours.map_or_else(|| "-".into(), |ours| format!("{:.2}", figures.per_s / ours));
                writeln!(out, "| {} | {} |", title(&measured.name), row(figures, ratio))?;
                if let Some(error) = &figures.first_error {
                    failed.push(format!(
                        "{}: {} errors, the first: {}",
                        title(&measured.name),
                        figures.errors,
                        cell_text(error)
                    ));
                }
            }
            Err(why) => failed.push(format!("{} was not measured: {}", title(&measured.name), cell_text(why))),
        }
    }
    if !failed.is_empty() {
        writeln!(out)?;
    }
    for line in failed {
        writeln!(out, "- {line}")?;
    }
    Ok(())
}

fn known(name: &str) -> Option<&'static Peer> {
    KNOWN.iter().find(|peer| peer.name == name)
}

fn title(name: &str) -> &str {
    known(name).map_or(name, |peer| peer.title)
}

/// A single line, without characters that end a table cell.
fn cell_text(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn millis(millis: u64) -> String {
    if millis.is_multiple_of(1000) { format!("{} s", millis / 1000) } else { format!("{millis} ms") }
}

#[expect(clippy::cast_precision_loss, reason = "seconds in microseconds")]
fn micros(micros: Option<u64>) -> String {
    match micros {
        None => "-".into(),
        Some(micros @ ..1000) => format!("{micros} us"),
        Some(micros @ ..1_000_000) => format!("{:.1} ms", micros as f64 / 1e3),
        Some(micros) => format!("{:.1} s", micros as f64 / 1e6),
    }
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

    #[test]
    fn waits_have_a_suitable_unit() {
        let of = |wait| micros(Some(wait));
        assert_eq!(
            [of(7), of(999), of(1000), of(70_100), of(1_500_000), micros(None)],
            ["7 us", "999 us", "1.0 ms", "70.1 ms", "1.5 s", "-"]
        );
    }
}
