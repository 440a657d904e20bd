use fencelock_load::{Audit, LoadReport};
use serde::{Deserialize, Serialize};

/// The figures of one measurement of one library.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Counted grants of all tasks per second.
    pub per_s: f64,
    /// The median wait, in microseconds.
    pub p50_us: Option<u64>,
    /// The 99th percentile of the waits.
    pub p99_us: Option<u64>,
    /// The longest wait.
    pub longest_us: Option<u64>,
    /// The median wait of writers among readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_p50_us: Option<u64>,
    /// The longest wait of a writer among readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_longest_us: Option<u64>,
    /// The processor time of the server for each grant, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_us: Option<f64>,
    /// Whether readers and writers, or the holders of permits, were in conflict during the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
    /// Jain's index of the tasks' shares: 1 if all are equal; `None` without grants.
    pub jain: Option<f64>,
    /// Tasks without a grant: they waited for longer than the longest wait that ended.
    pub starved: u64,
    /// Attempts that ended with an error.
    pub errors: u64,
    /// The text of the first error.
    pub first_error: Option<String>,
}

impl Figures {
    /// The figures of a report.
    pub fn of(report: &LoadReport) -> Self {
        let all_tasks = u64::from(report.processes) * u64::from(report.tasks);
        Self {
            per_s: rounded(report.grants_per_s, 1),
            p50_us: report.wait_us.map(|wait| wait.p50),
            p99_us: report.wait_us.map(|wait| wait.p99),
            longest_us: report.wait_us.map(|wait| wait.max),
            writer_p50_us: report.writer_wait_us.map(|wait| wait.p50),
            writer_longest_us: report.writer_wait_us.map(|wait| wait.max),
            server_us: report.server_us_per_grant.map(|micros| rounded(micros, 2)),
            audit: report.audit,
            jain: report.fairness.map(|fairness| rounded(fairness.jain_tasks, 4)),
            starved: report.fairness.map_or(all_tasks, |fairness| fairness.empty_handed),
            errors: report.errors,
            first_error: report.first_error.clone(),
        }
    }
}

/// Rounds, because further digits are noise.
fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10_f64.powi(digits);
    (value * unit).round() / unit
}
