use fencelock_lab::load::Report;
use serde::{Deserialize, Serialize};

/// What is kept of one measurement of one library.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Grants of all tasks that count, each second.
    pub per_s: f64,
    /// Half of all grants came within this time, in microseconds.
    pub p50_us: Option<u64>,
    /// 99 of 100 grants.
    pub p99_us: Option<u64>,
    /// All of them.
    pub longest_us: Option<u64>,
    /// Jain's index of the tasks' shares: 1 if all are equal; nothing if nobody got anything.
    pub jain: Option<f64>,
    /// Tasks that got nothing at all: they waited for longer than the longest wait that ended.
    pub starved: u64,
    /// Attempts that failed otherwise than by waiting.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
}

impl Figures {
    /// Of the report of all workers.
    pub fn of(report: &Report) -> Self {
        let everybody = u64::from(report.processes) * u64::from(report.tasks);
        Self {
            per_s: rounded(report.grants_per_s, 1),
            p50_us: report.wait_us.map(|wait| wait.p50),
            p99_us: report.wait_us.map(|wait| wait.p99),
            longest_us: report.wait_us.map(|wait| wait.max),
            jain: report.fairness.map(|fairness| rounded(fairness.jain_tasks, 4)),
            starved: report.fairness.map_or(everybody, |fairness| fairness.empty_handed),
            errors: report.errors,
            first_error: report.first_error.clone(),
        }
    }
}

/// More digits would be noise in the run's file.
fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10_f64.powi(digits);
    (value * unit).round() / unit
}
