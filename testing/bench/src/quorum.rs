//! The cost of a majority, also with unavailable nodes: one Redis server, quorums of three and five, and a quorum of
//! five with two stopped nodes, measured alternately.

use crate::report::{machine, median, percentile};
use crate::uncontended::{ours_while, per_second};
use crate::{Effort, Failure, info, with_arguments};
use fencelock::backends::BootClock;
use fencelock::{Client, Clock as _};
use fencelock_testkit::{RedisServer, redlock_url};
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

/// The number of tasks in the measurement of throughput.
const MANY: usize = 64;
/// Long enough for the client to detect that a node is stopped.
const LEARNING: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct QuorumReport {
    machine: String,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    backend: &'static str,
    nodes: usize,
    p50_us: f64,
    p99_us: f64,
    /// The ratio of the median to that of one Redis server.
    ratio: f64,
    /// The number of scripts on all nodes for one acquire and release.
    scripts_per_cycle: f64,
    many_per_s: f64,
}

struct TestBackend {
    name: &'static str,
    nodes: usize,
    frozen: usize,
    client: Client,
    cycles: Vec<u64>,
    scripts: f64,
    many_per_s: Vec<f64>,
}

/// Measures, and prints a table.
pub fn main() -> ExitCode {
    with_arguments(measure)
}

fn measure(effort: Effort) -> Result<QuorumReport, Failure> {
    let servers = (0..5).map(|_| RedisServer::start()).collect::<Result<Vec<_>, _>>()?;
    let machine = machine(&servers[0]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let rows = runtime.block_on(async {
        let mut backends = Vec::new();
        for (name, nodes, frozen) in
            [("one Redis", 1, 0), ("quorum", 3, 0), ("quorum", 5, 0), ("quorum, two stopped", 5, 2)]
        {
            backends.push(TestBackend::new(name, &servers[..nodes], frozen).await?);
        }
        for _ in 0..effort.pairs {
            for backend in &mut backends {
                backend.measure(&servers, effort).await?;
            }
        }
        Ok::<_, Failure>(backends)
    })?;
    let one = rows.first().map_or(f64::NAN, |one| percentile(&mut one.cycles.clone(), 50.0));
    Ok(QuorumReport { machine, rows: rows.into_iter().map(|backend| backend.row(one)).collect() })
}

impl TestBackend {
    async fn new(name: &'static str, servers: &[RedisServer], frozen: usize) -> Result<Self, Failure> {
        let url = match servers {
            [one] => one.url(),
            // Each number of nodes is a separate set, on new servers.
            several => redlock_url(several, &format!("trust_empty=true&prefix={}-", several.len())),
        };
        let client = Client::connect(&url).await?;
        client.lock("warm-up").await?.release().await?;
        let nodes = servers.len();
        Ok(Self { name, nodes, frozen, client, cycles: Vec::new(), scripts: f64::NAN, many_per_s: Vec::new() })
    }

    async fn measure(&mut self, servers: &[RedisServer], effort: Effort) -> Result<(), Failure> {
        let frozen = &servers[self.nodes - self.frozen..self.nodes];
        frozen.iter().for_each(RedisServer::freeze);
        let measured = self.measure_now(&servers[..self.nodes - self.frozen], effort).await;
        frozen.iter().for_each(RedisServer::thaw);
        measured
    }

    async fn measure_now(&mut self, awake: &[RedisServer], effort: Effort) -> Result<(), Failure> {
        if self.frozen > 0 {
            self.cycle_for(LEARNING).await?;
        }
        let before = scripts(awake)?;
        let cycles = self.cycle_for(effort.span).await?;
        self.scripts = crate::uncontended::rate(scripts(awake)? - before, Duration::from_secs(cycles.len() as u64));
        self.cycles.extend(cycles);
        let (client, nodes) = (&self.client, self.nodes);
        let work = |task, measurement| ours_while(client.clone(), format!("many-{nodes}-{task}"), measurement);
        self.many_per_s.push(per_second(MANY, effort.span, work).await?);
        Ok(())
    }

    /// The durations of all cycles in microseconds.
    async fn cycle_for(&self, span: Duration) -> Result<Vec<u64>, Failure> {
        let end = BootClock.now() + span;
        let mut cycles = Vec::new();
        loop {
            let begun = BootClock.now();
            if begun >= end {
                return Ok(cycles);
            }
            self.client.lock("one").await?.release().await?;
            cycles.push(u64::try_from(BootClock.now().since(begun).as_micros())?);
        }
    }

    fn row(mut self, one: f64) -> Row {
        let p50_us = percentile(&mut self.cycles, 50.0);
        Row {
            backend: self.name,
            nodes: self.nodes,
            p50_us,
            p99_us: percentile(&mut self.cycles, 99.0),
            ratio: p50_us / one,
            scripts_per_cycle: self.scripts,
            many_per_s: median(self.many_per_s),
        }
    }
}

/// The number of scripts that these servers have executed.
fn scripts(servers: &[RedisServer]) -> Result<u64, Failure> {
    servers.iter().map(|server| info::calls(server, "evalsha")).sum()
}

impl fmt::Display for QuorumReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        writeln!(f, "Acquire + release, uncontended key")?;
        writeln!(
            f,
            "| backend | nodes | p50, us | p99, us | p50 / one Redis | scripts, all nodes | {MANY} tasks, cycles/s |"
        )?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|---:|")?;
        for row in &self.rows {
            writeln!(
                f,
                "| {} | {} | {:.0} | {:.0} | {:.2} | {:.1} | {:.0} |",
                row.backend, row.nodes, row.p50_us, row.p99_us, row.ratio, row.scripts_per_cycle, row.many_per_s
            )?;
        }
        Ok(())
    }
}
