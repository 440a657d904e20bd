//! The tables of a run: one for each cell.

use super::figures::Figures;
use super::goals::{OURS, longest_over_median};
use super::known::title;
use super::plan::Cell;
use super::run::Run;
use fencelock_load::LoadMode;
use std::fmt::Write as _;

/// Exclusive locks of keys that tasks contend for.
pub(crate) fn contended(out: &mut String, run: &Run, cell: Cell, title: &str) -> std::fmt::Result {
    let head = "grants/s | of fencelock's | wait p50 | p99 | longest | Jain | tasks without a grant";
    table(out, run, cell, title, head, |figures| {
        let (jain, starved) = (jain(figures), figures.starved);
        let [p50, p99, longest] = [figures.p50_us, figures.p99_us, figures.longest_us].map(micros);
        format!("{p50} | {p99} | {longest} | {jain} | {starved}")
    })
}

pub(crate) fn uncontended(out: &mut String, run: &Run, cell: Cell) -> std::fmt::Result {
    let title = format!("Uncontended keys, {}", in_processes(cell));
    let head = "cycles/s | of fencelock's | acquire p50 | p99";
    table(out, run, cell, &title, head, |figures| format!("{} | {}", micros(figures.p50_us), micros(figures.p99_us)))
}

/// Readers of one key, and their writers.
pub(crate) fn readers(out: &mut String, run: &Run, cell: Cell) -> std::fmt::Result {
    let has_writers = cell.mode != (LoadMode::Shared { writers_ppm: 0 });
    let mut title = format!("Readers of one key, {}", in_processes(cell));
    if has_writers {
        title += ", 1 % writers";
    }
    let head = "grants/s | of fencelock's | wait p50 | p99 | writer p50 | longest writer | longest / p50 | Jain | \
                tasks without a grant | server, us/grant | conflicts";
    table(out, run, cell, &title, head, |figures| {
        let [p50, p99, writer, longest] =
            [figures.p50_us, figures.p99_us, figures.writer_p50_us, figures.writer_longest_us].map(micros);
        let times = figures.writer_p50_us.zip(figures.writer_longest_us);
        let times = times.map_or_else(|| "-".into(), |(p50, max)| format!("{:.1}", longest_over_median(p50, max)));
        format!("{p50} | {p99} | {writer} | {longest} | {times} | {}", of_any_mode(figures))
    })
}

/// Permits of one semaphore.
pub(crate) fn permits(out: &mut String, run: &Run, cell: Cell) -> std::fmt::Result {
    let LoadMode::Permits { limit, .. } = cell.mode else { return Ok(()) };
    let title = format!("A semaphore of {limit} permits, {}", in_processes(cell));
    let head = "grants/s | of fencelock's | wait p50 | p99 | longest | Jain | tasks without a grant | server, us/grant | \
                conflicts";
    table(out, run, cell, &title, head, |figures| {
        let [p50, p99, longest] = [figures.p50_us, figures.p99_us, figures.longest_us].map(micros);
        format!("{p50} | {p99} | {longest} | {}", of_any_mode(figures))
    })
}

fn in_processes(cell: Cell) -> String {
    let (tasks, processes) = (cell.all_tasks(), cell.processes);
    match (tasks, processes) {
        (1, _) => "one task".to_owned(),
        (_, 1) => format!("{tasks} tasks in one process"),
        _ => format!("{tasks} tasks in {processes} processes"),
    }
}

/// The last columns of locks that several clients hold together.
fn of_any_mode(figures: &Figures) -> String {
    let server = figures.server_us.map_or_else(|| "-".into(), |micros| format!("{micros:.1}"));
    let conflicts = match figures.audit {
        None => "-".to_owned(),
        Some(audit) if audit.conflicts == 0 => format!("none in {} changes", audit.checked),
        Some(audit) => format!("**{} in {} changes: it does not exclude**", audit.conflicts, audit.checked),
    };
    format!("{} | {} | {server} | {conflicts}", jain(figures), figures.starved)
}

/// One row for each library, with its rate and the ratio to that of fencelock; then the failures. Nothing if no library was
/// measured.
fn table(
    out: &mut String,
    run: &Run,
    cell: Cell,
    name: &str,
    head: &str,
    row: impl Fn(&Figures) -> String,
) -> std::fmt::Result {
    let rows: Vec<_> = run.measured.iter().filter(|measured| measured.cell == cell).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let columns = head.split(" | ").count();
    writeln!(out, "\n**{name}**\n\n| library | {head} |\n|---{}|", "|---:".repeat(columns))?;
    let ours = run.figures(OURS, cell).map(|figures| figures.per_s).filter(|per_s| *per_s > 0.0);
    let mut failed = Vec::new();
    for measured in rows {
        let name = title(&measured.name);
        match &measured.figures {
            Ok(figures) => {
                let ratio = ours.map_or_else(|| "-".into(), |ours| format!("{:.2}", figures.per_s / ours));
                writeln!(out, "| {name} | {:.0} | {ratio} | {} |", figures.per_s, row(figures))?;
                if let Some(error) = &figures.first_error {
                    let (count, error) = (figures.errors, cell_text(error));
                    failed.push(format!("{name}: {count} errors, the first: {error}"));
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

/// A single line, without characters that end a table cell.
pub(crate) fn cell_text(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

pub(crate) fn millis(millis: u64) -> String {
    if millis.is_multiple_of(1000) { format!("{} s", millis / 1000) } else { format!("{millis} ms") }
}

fn jain(figures: &Figures) -> String {
    figures.jain.map_or_else(|| "-".into(), |jain| format!("{jain:.3}"))
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
    fn waits_have_a_suitable_unit() {
        let of = |wait| micros(Some(wait));
        assert_eq!(
            [of(7), of(999), of(1000), of(70_100), of(1_500_000), micros(None)],
            ["7 us", "999 us", "1.0 ms", "70.1 ms", "1.5 s", "-"]
        );
    }
}
