//! Figures, and how they are printed.

use crate::info;
use crate::server_time::ServerTime;
use fencelock_testkit::RedisServer;
use std::fmt;

/// All figures of one run.
#[derive(Debug, Default)]
pub(crate) struct BenchReport {
    pub(crate) machine: String,
    pub(crate) uncontended: Vec<Uncontended>,
    pub(crate) server_time: Vec<ServerTime>,
    pub(crate) handoff: Option<HandOff>,
    pub(crate) idle: Option<IdleLease>,
    pub(crate) local: Vec<Local>,
    pub(crate) hot_key: Vec<HotKey>,
}

#[derive(Debug)]
pub(crate) struct Uncontended {
    pub(crate) tasks: usize,
    pub(crate) fencelock_per_s: f64,
    pub(crate) bare_per_s: f64,
    pub(crate) ratio: f64,
}

#[derive(Debug)]
pub(crate) struct HandOff {
    pub(crate) handoffs: usize,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) ping_p50_us: f64,
    pub(crate) ping_p99_us: f64,
    pub(crate) ratio: f64,
}

/// A client keeps the lease of its own key, until another client waits for it.
#[derive(Debug)]
pub(crate) struct IdleLease {
    pub(crate) cycles_per_s: f64,
    pub(crate) wait_p50_us: f64,
    pub(crate) wait_p99_us: f64,
}

/// Grants of tasks of one process on one key.
#[derive(Debug)]
pub struct Local {
    pub(crate) backend: &'static str,
    /// Their number.
    pub tasks: usize,
    /// In a second, if they share leases.
    pub shared_per_s: f64,
    /// If each claims.
    pub alone_per_s: f64,
}

#[derive(Debug)]
pub(crate) struct HotKey {
    pub(crate) strategy: &'static str,
    pub(crate) grants_per_s: f64,
    pub(crate) wait_p50_us: f64,
    pub(crate) wait_p99_us: f64,
    pub(crate) wait_max_us: f64,
    pub(crate) max_over_median: f64,
    pub(crate) jain: f64,
}

/// The machine of a run, and its software.
pub(crate) fn machine(server: &RedisServer) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = cpu.map_or("unknown", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    let redis = info::field(server, "server", "redis_version:").unwrap_or_else(|| "unknown".into());
    let ours = env!("CARGO_PKG_VERSION");
    format!("fencelock {ours}, Redis {redis}, {cores} cores ({cpu}), Linux {}", kernel.trim())
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        writeln!(f, "Acquire + release, uncontended key, cycles per second")?;
        writeln!(f, "| tasks | fencelock | bare client, same scripts | ratio |\n|---:|---:|---:|---:|")?;
        for row in &self.uncontended {
            writeln!(f, "| {} | {:.0} | {:.0} | {:.2} |", row.tasks, row.fencelock_per_s, row.bare_per_s, row.ratio)?;
        }
        writeln!(f, "\nTime that the server spends on a command, as it reports it")?;
        writeln!(f, "| command | us | ratio to the empty script |\n|---|---:|---:|")?;
        for row in &self.server_time {
            writeln!(f, "| {} | {:.1} | {:.1} |", row.what, row.us, row.times_empty)?;
        }
        if let Some(row) = &self.handoff {
            writeln!(f, "\nHand-off between two processes, {} times", row.handoffs)?;
            writeln!(f, "| | p50, us | p99, us |\n|---|---:|---:|")?;
            writeln!(f, "| release called -> lock returned | {:.0} | {:.0} |", row.p50_us, row.p99_us)?;
            writeln!(f, "| PING | {:.0} | {:.0} |", row.ping_p50_us, row.ping_p99_us)?;
            writeln!(f, "| ratio of the p50 | {:.2} | |", row.ratio)?;
        }
        if let Some(row) = &self.idle {
            writeln!(f, "\nA lease that is kept for the next task (`idle_timeout`), one task")?;
            writeln!(f, "| cycles per second | another client waits for it, p50, us | p99, us | p50 / hand-off |")?;
            writeln!(f, "|---:|---:|---:|---:|")?;
            let ratio = self.handoff.as_ref().map_or(f64::NAN, |handoff| row.wait_p50_us / handoff.p50_us);
            writeln!(f, "| {:.0} | {:.0} | {:.0} | {ratio:.2} |", row.cycles_per_s, row.wait_p50_us, row.wait_p99_us)?;
        }
        writeln!(f, "\nOne key, one process, empty critical section, grants per second")?;
        writeln!(f, "| backend | tasks | shared leases | separate claims |\n|---|---:|---:|---:|")?;
        for row in &self.local {
            writeln!(f, "| {} | {} | {:.0} | {:.0} |", row.backend, row.tasks, row.shared_per_s, row.alone_per_s)?;
        }
        writeln!(f, "\nOne key, 4 processes x 64 tasks, empty critical section")?;
        writeln!(f, "| waiting | grants/s | wait p50, ms | p99, ms | longest, ms | longest / p50 | Jain fairness |")?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|---:|")?;
        for row in &self.hot_key {
            writeln!(
                f,
                "| {} | {:.0} | {:.2} | {:.1} | {:.1} | {:.1} | {:.3} |",
                row.strategy,
                row.grants_per_s,
                row.wait_p50_us / 1e3,
                row.wait_p99_us / 1e3,
                row.wait_max_us / 1e3,
                row.max_over_median,
                row.jain
            )?;
        }
        Ok(())
    }
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The value that `percent` of the values do not exceed.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "microseconds and counts, far below 2^53"
)]
pub fn percentile(values: &mut [u64], percent: f64) -> f64 {
    values.sort_unstable();
    let rank = ((values.len() as f64) * percent / 100.0).ceil() as usize;
    values.get(rank.clamp(1, values.len().max(1)) - 1).map_or(f64::NAN, |value| *value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let mut values: Vec<u64> = (1..=100).rev().collect();
        for (percent, expected) in [(50.0, 50.0), (99.0, 99.0), (100.0, 100.0), (0.0, 1.0)] {
            assert!((percentile(&mut values, percent) - expected).abs() < 1e-9);
        }
    }
}
