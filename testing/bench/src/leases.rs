//! Many leases of one process, renewed for a while: the cost for the process and its servers, on one Redis server and on a
//! quorum with one stopped node.

use crate::report::machine;
use crate::uncontended::rate;
use crate::{Effort, Failure, info, with_arguments};
use fencelock::backends::BootClock;
use fencelock::{Client, Clock as _, Guard};
use fencelock_testkit::{RedisServer, redlock_url};
use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(30);
/// The number of tasks that acquire leases concurrently.
const TAKERS: usize = 64;
/// Longer than the timeout of a connection, shorter than a lease.
const PAUSE: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct LeaseReport {
    machine: String,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    backend: &'static str,
    leases: usize,
    /// The CPU use of the client process for all its leases, in percent of one core.
    client_percent: f64,
    /// The CPU use of all running servers, in percent of one core.
    servers_percent: f64,
    renewals_per_s: f64,
    /// Resident memory of the process for each lease with its guard. Only the first place is meaningful: later ones reuse
    /// released memory.
    bytes_per_lease: Option<f64>,
    /// Leases that were lost.
    lost: usize,
}

/// Measures, and prints a table.
pub fn main() -> ExitCode {
    with_arguments(measure)
}

fn measure(effort: Effort) -> Result<LeaseReport, Failure> {
    let (many, some) = if effort.is_quick() { (10_000, 2_000) } else { (100_000, 20_000) };
    let servers = (0..3).map(|_| RedisServer::start()).collect::<Result<Vec<_>, _>>()?;
    let machine = machine(&servers[0]);
    let quorum = redlock_url(&servers, "trust_empty=true");
    // One thread, so that the share of a core is meaningful.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let rows = runtime.block_on(async {
        let (url, alone) = (servers[0].url(), &servers[..1]);
        let one = hold("one Redis", &url, many, alone, Trouble::None).await?;
        let still = hold("one Redis, after a stop of 3 s", &url, many, alone, Trouble::Pause(PAUSE)).await?;
        let three = hold("quorum of 3", &quorum, some, &servers, Trouble::None).await?;
        let two = hold("quorum of 3, one stopped", &quorum, some, &servers[..2], Trouble::Frozen(&servers[2])).await?;
        let mut rows = vec![one, still, three, two];
        // Later rows reuse the memory of the first.
        rows.iter_mut().skip(1).for_each(|row| row.bytes_per_lease = None);
        Ok::<_, Failure>(rows)
    })?;
    Ok(LeaseReport { machine, rows })
}

/// What happens to the servers while the leases are held.
#[derive(Debug, Clone, Copy)]
enum Trouble<'a> {
    None,
    /// The first server is stopped for this time, and measured when it continues.
    Pause(Duration),
    /// This server is stopped during the whole measurement.
    Frozen(&'a RedisServer),
}

async fn hold(
    backend: &'static str,
    url: &str,
    leases: usize,
    awake: &[RedisServer],
    trouble: Trouble<'_>,
) -> Result<Row, Failure> {
    let client = Client::connect(url).await?;
    client.lock("warm-up").await?.release().await?;
    let before = resident()?;
    let guards = take(&client, leases).await?;
    let after = resident()?;
    if let Trouble::Frozen(frozen) = trouble {
        frozen.freeze();
    }
    // Every lease has been renewed at least twice by then, so the distribution of its renewals is stable.
    tokio::time::sleep(TTL).await;
    if let Trouble::Pause(pause) = trouble {
        awake[0].freeze();
        tokio::time::sleep(pause).await;
        awake[0].thaw();
    }
    let begun = Usage::now(awake)?;
    tokio::time::sleep(TTL).await;
    let used = Usage::now(awake)?.since(&begun);
    if let Trouble::Frozen(frozen) = trouble {
        frozen.thaw();
    }
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    release(guards).await;
    Ok(Row {
        backend,
        leases,
        client_percent: 100.0 * used.client / used.wall.as_secs_f64(),
        servers_percent: 100.0 * used.servers / used.wall.as_secs_f64(),
        renewals_per_s: rate(used.renewals, used.wall),
        bytes_per_lease: Some(rate(after.saturating_sub(before), Duration::from_secs(leases as u64))),
        lost,
    })
}

async fn take(client: &Client, leases: usize) -> Result<Vec<Guard>, Failure> {
    let client = Arc::new(client.clone());
    let takers: Vec<_> = (0..TAKERS)
        .map(|taker| {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                let mut guards = Vec::with_capacity(leases / TAKERS + 1);
                for lease in (taker..leases).step_by(TAKERS) {
                    guards.push(client.lock(format!("lease:{lease}")).ttl(TTL).await?);
                }
                Ok::<_, fencelock::Error>(guards)
            })
        })
        .collect();
    let mut guards = Vec::with_capacity(leases);
    for taker in takers {
        guards.extend(taker.await??);
    }
    Ok(guards)
}

async fn release(guards: Vec<Guard>) {
    for guard in guards {
        // Lost leases were counted above.
        let _ = guard.release().await;
    }
}

/// The resources used up to a time.
struct Usage {
    at: fencelock::Moment,
    wall: Duration,
    /// CPU seconds.
    client: f64,
    servers: f64,
    renewals: u64,
}

impl Usage {
    fn now(servers: &[RedisServer]) -> Result<Self, Failure> {
        let (mut cpu, mut renewals) = (0.0, 0);
        for server in servers {
            let pid = server.pid().ok_or("a server has ended")?;
            cpu += cpu_seconds(&pid.to_string())?;
            // Renewals send it once, and nothing else does.
            renewals += info::calls(server, "getrange")?;
        }
        let client = cpu_seconds("self")?;
        Ok(Self { at: BootClock.now(), wall: Duration::ZERO, client, servers: cpu, renewals })
    }

    fn since(self, begun: &Self) -> Self {
        Self {
            at: self.at,
            wall: self.at.since(begun.at),
            client: self.client - begun.client,
            servers: self.servers - begun.servers,
            renewals: self.renewals - begun.renewals,
        }
    }
}

/// The resident memory of this process in bytes.
fn resident() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// User and system time of all threads of a process.
fn cpu_seconds(process: &str) -> Result<f64, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name may contain spaces, and ends at the last parenthesis; utime and stime are the 12th and 13th field after it.
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
    let ticks = |field: usize| fields.get(field).and_then(|field| field.parse::<f64>().ok()).ok_or("no times");
    let per_second = rustix::param::clock_ticks_per_second();
    Ok((ticks(11)? + ticks(12)?) / f64::from(u32::try_from(per_second)?))
}

impl fmt::Display for LeaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        writeln!(f, "Leases of one process, held with a TTL of {} s", TTL.as_secs())?;
        writeln!(
            f,
            "| backend | leases | renewals/s, all nodes | client, % of a core | servers, % of a core | bytes per lease | lost |"
        )?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|---:|")?;
        for row in &self.rows {
            writeln!(
                f,
                "| {} | {} | {:.0} | {:.1} | {:.1} | {} | {} |",
                row.backend,
                row.leases,
                row.renewals_per_s,
                row.client_percent,
                row.servers_percent,
                row.bytes_per_lease.map_or_else(|| "-".into(), |bytes| format!("{bytes:.0}")),
                row.lost
            )?;
        }
        Ok(())
    }
}
