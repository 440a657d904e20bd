//! The result of a load.

use crate::command_counter::ServerCounts;
use crate::plan::{Plan, millis};
use crate::protocol::{Log, Workload};
use crate::shop::LedgerEntries;
use crate::waits::{Waits, three_digits};
use hdrhistogram::Histogram;
use serde::Serialize;

/// The result of a run. The JSON output has the same field names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadReport {
    /// The workload.
    pub workload: Workload,
    /// The number of worker processes.
    pub processes: u32,
    /// The number of tasks of each process.
    pub tasks: u32,
    /// The number of different keys.
    pub keys: u32,
    /// The warm-up in milliseconds.
    pub warm_up_ms: u64,
    /// The measured time in milliseconds: the span, or the time until all was sold.
    pub span_ms: u64,
    /// The number of counted grants.
    pub grants: u64,
    /// Grants per second.
    pub grants_per_s: f64,
    /// From the request to the grant; `null` without grants.
    pub wait_us: Option<Wait>,
    /// How equal the shares are; `null` without grants.
    pub fairness: Option<Fairness>,
    /// How often a waiter retried, after a wake-up or by itself, and the lock was still held, for each grant.
    pub wasted_wakeups_per_grant: f64,
    /// The commands that all lock clients sent to all servers, for each grant; `null` without servers. The servers
    /// count the commands of all clients, so no other client should use them.
    pub commands_per_grant: Option<f64>,
    /// The processor time of all servers for each grant, in microseconds; `null` without servers.
    pub server_us_per_grant: Option<f64>,
    /// The result of the flash sale; `null` for other workloads.
    pub sale: Option<Sale>,
    /// Attempts that ended without a lock, and locks that were lost.
    pub errors: u64,
    /// The text of the first error.
    pub first_error: Option<String>,
    /// All waits: pairs of microseconds, rounded to three significant digits, and their number.
    pub waits: Waits,
}

/// Waits in microseconds, to three significant digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p999: u64,
    /// The longest wait.
    pub max: u64,
}

/// How equal the shares are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fairness {
    /// Jain's index of the grants of all tasks: 1 if all are equal, 1/n if one of n tasks received all.
    pub jain_tasks: f64,
    /// The same index for processes.
    pub jain_processes: f64,
    /// The longest wait, divided by the median.
    pub longest_over_median: f64,
    /// Tasks without a grant.
    pub empty_handed: u64,
}

/// The ledger after a sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sale {
    /// The initial stock.
    pub stock: u64,
    /// The remaining stock.
    pub left: i64,
    /// The number of sales.
    pub sold: u64,
    /// Sales that are missing in the stock, because two holders overlapped. It must be 0.
    pub oversold: u64,
    /// Sales whose fencing token is not greater than the previous one. It must be 0.
    pub out_of_order: u64,
}

impl Sale {
    pub(crate) fn of(stock: u64, entries: &LedgerEntries) -> Self {
        let sold = entries.tokens.len() as u64;
        let gone = u64::try_from(i128::from(stock) - i128::from(entries.left)).unwrap_or(0);
        let out_of_order = entries.tokens.windows(2).filter(|pair| pair[1] <= pair[0]).count() as u64;
        Self { stock, left: entries.left, sold, oversold: sold.abs_diff(gone), out_of_order }
    }

    /// Whether no two holders overlapped.
    pub const fn is_exact(&self) -> bool {
        self.oversold == 0 && self.out_of_order == 0
    }
}

impl LoadReport {
    pub(crate) fn of(plan: &Plan, logs: &[Log], counts: Option<ServerCounts>, sale: Option<Sale>) -> Self {
        let Ok(mut all) = Histogram::new(3) else { unreachable!("three digits are allowed") };
        for log in logs {
            log.waits.add_to(&mut all);
        }
        let by_task: Vec<u64> = logs.iter().flat_map(|log| &log.tasks).map(|task| task.grants).collect();
        let by_process: Vec<u64> = logs.iter().map(|log| log.tasks.iter().map(|task| task.grants).sum()).collect();
        let grants: u64 = by_task.iter().sum();
        let refused: u64 =
            logs.iter().map(|log| log.refused + log.tasks.iter().map(|task| task.refused).sum::<u64>()).sum();
        let span = millis(plan.span);
        let span_ms = logs.iter().map(|log| log.took_ms.unwrap_or(span)).max().unwrap_or(span).max(1);
        let wait_us = (!all.is_empty()).then(|| Wait::of(&all));
        let fairness = wait_us.filter(|_| grants > 0).map(|wait| Fairness {
            jain_tasks: jain(&by_task),
            jain_processes: jain(&by_process),
            longest_over_median: ratio(wait.max, wait.p50.max(1)),
            empty_handed: by_task.iter().filter(|grants| **grants == 0).count() as u64,
        });
        Self {
            workload: plan.workload,
            processes: plan.processes,
            tasks: plan.tasks,
            keys: plan.key_count(),
            warm_up_ms: millis(plan.warm_up()),
            span_ms,
            grants,
            grants_per_s: ratio(grants, span_ms) * 1e3,
            wait_us,
            fairness,
            wasted_wakeups_per_grant: ratio(refused, grants.max(1)),
            commands_per_grant: counts.map(|counts| ratio(counts.commands, grants.max(1))),
            server_us_per_grant: counts.map(|counts| ratio(counts.cpu_us, grants.max(1))),
            sale,
            errors: logs.iter().map(|log| log.errors).sum(),
            first_error: logs.iter().find_map(|log| log.first_error.clone()),
            waits: Waits::from(&all),
        }
    }
}

impl Wait {
    fn of(all: &Histogram<u64>) -> Self {
        // The exact value within a bucket of the histogram is unknown; the middle has the smallest error.
        let at = |quantile| three_digits(all.median_equivalent(all.value_at_quantile(quantile)));
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

/// Jain's index: 1 if all shares are equal, 1/n if one of n has everything, 0 if all are zero.
///
/// Source: Jain, Chiu and Hawe, "A quantitative measure of fairness", DEC TR-301, 1984.
#[expect(clippy::cast_precision_loss, reason = "counts, far below 2^53")]
pub fn jain(shares: &[u64]) -> f64 {
    let (sum, squares) =
        shares.iter().map(|share| *share as f64).fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[expect(clippy::cast_precision_loss, reason = "counts and microseconds, far below 2^53")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::WorkerMessage;

    fn logs(lines: &[&str]) -> Vec<Log> {
        let log = |line: &&str| match WorkerMessage::parse(line) {
            Ok(WorkerMessage::Log(log)) => *log,
            other => panic!("{other:?}"),
        };
        lines.iter().map(log).collect()
    }

    #[test]
    fn fairness_is_one_for_equal_shares_and_a_quarter_for_one_of_four() {
        assert!((jain(&[2; 4]) - 1.0).abs() < 1e-9);
        assert!((jain(&[8, 0, 0, 0]) - 0.25).abs() < 1e-9);
        assert!(jain(&[0, 0]).abs() < 1e-9 && jain(&[]).abs() < 1e-9);
    }

    #[test]
    fn the_report_sums_all_logs() {
        let logs = logs(&[
            r#"{"tasks":[{"grants":3,"refused":1},{"grants":1}],"waits":[[100,2],[200,2]],"refused":2,"errors":0,"first_error":null}"#,
            r#"{"tasks":[{"grants":4},{"grants":0}],"waits":[[100,3],[90000,1]],"errors":2,"first_error":"no"}"#,
        ]);
        let mut plan = Plan::new("memory:", Workload::HotKey);
        plan.tasks = 2;
        let report = LoadReport::of(&plan, &logs, Some(ServerCounts { commands: 24, cpu_us: 40 }), None);
        assert_eq!((report.grants, report.errors, report.first_error.as_deref()), (8, 2, Some("no")));
        assert_eq!(report.wait_us, Some(Wait { p50: 100, p90: 90_000, p99: 90_000, p999: 90_000, max: 90_000 }));
        assert_eq!(report.waits.pairs(), [(100, 5), (200, 2), (90_000, 1)]);
        let fairness = report.fairness.unwrap();
        assert_eq!(fairness.empty_handed, 1);
        for (found, expected) in [
            (report.grants_per_s, 8.0 / 3.0),
            (report.wasted_wakeups_per_grant, 3.0 / 8.0),
            (report.commands_per_grant.unwrap(), 3.0),
            (report.server_us_per_grant.unwrap(), 5.0),
            (fairness.jain_processes, 1.0),
            (fairness.jain_tasks, 64.0 / (4.0 * 26.0)),
            (fairness.longest_over_median, 900.0),
        ] {
            assert!((found - expected).abs() < 1e-9, "{found} for {expected}");
        }
    }

    #[test]
    fn a_run_without_a_grant_has_no_waits_and_no_shares() {
        let logs = logs(&[r#"{"tasks":[{"grants":0}],"waits":[],"errors":1,"first_error":"no"}"#]);
        let report = LoadReport::of(&Plan::new("memory:", Workload::HotKey), &logs, None, None);
        assert_eq!((report.wait_us, report.fairness, report.grants), (None, None, 0));
        assert!(report.to_string().contains("no task acquired a lock"), "{report}");
    }

    #[test]
    fn overlapping_sales_are_oversold_and_late_sales_are_out_of_order() {
        let sale = |left, tokens: &[u64]| Sale::of(3, &LedgerEntries { left, tokens: tokens.to_vec() });
        assert!(sale(0, &[1, 5, 6]).is_exact() && sale(3, &[]).is_exact() && sale(1, &[7, 8]).is_exact());
        assert_eq!(sale(1, &[1, 2, 3]).oversold, 1);
        assert_eq!(sale(-1, &[1, 2, 3, 4]).oversold, 0);
        assert_eq!(sale(0, &[1, 3, 2]).out_of_order, 1);
    }
}
