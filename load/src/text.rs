//! The report as text, within 80 columns.

use crate::protocol::Workload;
use crate::report::{LoadReport, Sale};
use std::fmt::{self, Write};

/// The length of a full bar.
const BAR: usize = 40;
/// The lower bounds of the histogram rows in each power of ten.
const STEPS: [u64; 3] = [1, 2, 5];

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&of(self))
    }
}

fn of(report: &LoadReport) -> String {
    let mut text = format!("{}\n\n", headline(report));
    let mut row = |label: &str, value: String| {
        let _ = writeln!(text, "  {label:<17} {value}");
    };
    let per_s = grouped(rounded(report.grants_per_s));
    row("grants", format!("{} in total, {per_s} per second", grouped(report.grants)));
    match (&report.wait_us, &report.fairness) {
        (Some(wait), Some(fair)) => {
            let waits = [("p50", wait.p50), ("p90", wait.p90), ("p99", wait.p99), ("p99.9", wait.p999)];
            let waits: Vec<_> = waits.iter().map(|(name, micros)| format!("{name} {}", span(*micros))).collect();
            row("wait", waits.join("   "));
            row("longest wait", format!("{}, {:.1} times the median", span(wait.max), fair.longest_over_median));
            let (tasks, processes) = (fair.jain_tasks, fair.jain_processes);
            row("fairness (Jain)", format!("{tasks:.3} among tasks, {processes:.3} among processes"));
            if fair.empty_handed > 0 {
                row("starved", format!("{} tasks without a grant", grouped(fair.empty_handed)));
            }
        }
        _ => row("wait", "no task acquired a lock".to_owned()),
    }
    row("wasted wake-ups", format!("{:.3} per grant", report.wasted_wakeups_per_grant));
    let commands = report.commands_per_grant.map(|commands| format!("{commands:.2} per grant"));
    row("commands", commands.unwrap_or_else(|| "-".to_owned()));
    if let Some(time) = report.server_us_per_grant {
        row("server time", format!("{time:.2} us per grant"));
    }
    if let Some(sale) = &report.sale {
        row("sale", sale_result(sale));
    }
    if report.errors > 0 {
        row(
            "errors",
            format!("{}; the first: {}", grouped(report.errors), report.first_error.as_deref().unwrap_or("-")),
        );
    }
    text + &histogram(report.waits.pairs())
}

fn headline(report: &LoadReport) -> String {
    let what = match report.workload {
        Workload::Uncontended => "Each task has its own key".to_owned(),
        Workload::HotKey => "One key for all tasks".to_owned(),
        Workload::ManyKeys => format!("{} keys, chosen at random", grouped(report.keys.into())),
        Workload::FlashSale => "A flash sale".to_owned(),
    };
    let LoadReport { processes, tasks, .. } = report;
    let process = if *processes == 1 { "process" } else { "processes" };
    let task = if *tasks == 1 { "task" } else { "tasks" };
    format!("{what}: {processes} {process} of {tasks} {task}, {}", span(report.span_ms * 1000))
}

fn sale_result(sale: &Sale) -> String {
    let Sale { stock, left, sold, oversold, out_of_order } = sale;
    let verdict = if sale.is_exact() {
        "nothing sold twice".to_owned()
    } else {
        format!("{oversold} SOLD TWICE, {out_of_order} out of order")
    };
    format!("{sold} of {stock} sold, {left} left: {verdict}")
}

/// A histogram of waits; each row ends where the next one starts.
fn histogram(pairs: &[(u64, u64)]) -> String {
    let all: u64 = pairs.iter().map(|(_, count)| count).sum();
    let (Some((shortest, _)), Some((longest, _))) = (pairs.first(), pairs.last()) else { return String::new() };
    let steps: Vec<u64> = (0..18).flat_map(|power| STEPS.map(|step| step * 10_u64.pow(power))).collect();
    let first = steps.partition_point(|step| step <= shortest).saturating_sub(1);
    let last = steps.partition_point(|step| step <= longest).max(first + 1);
    let mut text = String::from("\n  wait from\n");
    for row in first..last {
        let (from, to) = (steps[row], steps.get(row + 1).copied().unwrap_or(u64::MAX));
        // Waits shorter than a microsecond are in the first row.
        let count: u64 =
            pairs.iter().filter(|(wait, _)| (*wait).max(1) >= from && (*wait).max(1) < to).map(|pair| pair.1).sum();
        let line = format!("  {:>8}  {:>6}  {}", span(from), share(count, all), bar(count, all));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn share(count: u64, all: u64) -> String {
    match count * 1000 / all.max(1) {
        0 if count > 0 => "<0.1 %".to_owned(),
        tenths => format!("{}.{} %", tenths / 10, tenths % 10),
    }
}

/// A bar with a resolution of an eighth of a column.
fn bar(count: u64, all: u64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = usize::try_from(u128::from(count) * 8 * BAR as u128 / u128::from(all.max(1))).unwrap_or(0);
    let eighths = if count > 0 { eighths.max(1) } else { 0 };
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

/// A duration with three digits and a unit.
fn span(micros: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let (number, unit) = match micros {
        0..1000 => return format!("{micros} us"),
        1000..1_000_000 => (micros as f64 / 1e3, "ms"),
        _ => (micros as f64 / 1e6, "s"),
    };
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    let text = format!("{number:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate of grants")]
fn rounded(number: f64) -> u64 {
    number.round() as u64
}

/// `12,345`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        let spans = [0, 999, 1000, 1230, 45_600, 123_000, 1_000_000, 12_300_000].map(span);
        assert_eq!(spans.join(", "), "0 us, 999 us, 1 ms, 1.23 ms, 45.6 ms, 123 ms, 1 s, 12.3 s");
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped).join(" "), "0 999 1,000 1,234,567");
    }

    #[test]
    fn a_histogram_has_a_row_for_each_step_between_the_shortest_and_the_longest() {
        let text = histogram(&[(0, 5), (3, 1), (2000, 4000)]);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows.len(), 11, "{text}");
        assert_eq!(rows[0], "      1 us   0.1 %  ▏");
        assert_eq!(rows[1], "      2 us  <0.1 %  ▏");
        assert_eq!(rows[2], "      5 us   0.0 %");
        assert!(rows[10].starts_with("      2 ms  99.8 %  ███"), "{text}");
        assert_eq!(histogram(&[]), "");
    }
}
