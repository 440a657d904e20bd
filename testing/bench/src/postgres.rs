//! A lock on PostgreSQL, against the row that is written by hand: `UPDATE ... WHERE` it is free, and another `UPDATE` to free it.

use crate::report::median;
use crate::{Effort, Failure, with_arguments};
use fencelock::Backend;
use fencelock::backends::Postgres;
use fencelock::contract::{Acquire, Claim, Event, Intent, Listener, Release};
use fencelock_testkit::{PostgresServer, claim};
use futures_util::future::try_join_all;
use serde::Serialize;
use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls, Statement};

const CONNECTIONS: [usize; 2] = [1, 16];
const LONG: Duration = Duration::from_secs(60);

/// Cycles in a second, medians of rounds that alternate.
#[derive(Debug, Serialize)]
struct Cycles {
    connections: usize,
    by_hand: f64,
    /// The role may update the table.
    direct: f64,
    /// It may only call the functions.
    functions: f64,
    direct_ratio: f64,
    functions_ratio: f64,
}

#[derive(Debug, Serialize)]
struct OnPostgres {
    version: String,
    cycles: Vec<Cycles>,
    /// A durable update of one row, and a hand-off from the release to the event of the waiter, in microseconds.
    update_us: f64,
    hand_off_us: f64,
    hand_off_ratio: f64,
    /// Bytes of the log of the server for a cycle.
    wal_bytes: f64,
    table_bytes_before: u64,
    table_bytes_after: u64,
}

/// Measures, and prints a table or JSON.
pub fn main() -> ExitCode {
    with_arguments(|effort| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(measure(effort))
    })
}

async fn measure(effort: Effort) -> Result<OnPostgres, Failure> {
    // What is reported is on the disk.
    let server = PostgresServer::start(&["fsync=on"]).map_err(std::io::Error::other)?;
    let url = format!("{}?create=true", server.url("postgres"));
    Postgres::open(&url).await?;
    server.sql(
        "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA fencelock TO app; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fencelock TO app; \
         CREATE TABLE by_hand (key text PRIMARY KEY, holder bytea, ends timestamptz NOT NULL, fence bigint NOT NULL) WITH (fillfactor = 50); \
         INSERT INTO by_hand SELECT 'k' || n, NULL, '-infinity', 0 FROM generate_series(0, 63) n",
    );
    let mut cycles = Vec::new();
    for connections in CONNECTIONS {
        cycles.push(compare(&server, connections, effort).await?);
    }
    let rows = [connect(&server.url("postgres"), 0).await?];
    let update_us = median(each_update(&rows[0], 300).await?);
    let hand_off_us = median(hand_offs(&url, 300).await?);
    let size = || server.sql("SELECT pg_total_relation_size('fencelock.locks')").parse().unwrap_or_default();
    let (before, position) = (size(), server.sql("SELECT pg_current_wal_lsn()"));
    let direct = [locks(&url, 0).await?];
    let done = rate(&direct, effort.span).await? * effort.span.as_secs_f64();
    let written: f64 =
        server.sql(&format!("SELECT pg_current_wal_lsn() - '{position}'::pg_lsn")).parse().unwrap_or_default();
    Ok(OnPostgres {
        version: server.sql("SHOW server_version"),
        cycles,
        update_us,
        hand_off_us,
        hand_off_ratio: hand_off_us / update_us,
        wal_bytes: written / done,
        table_bytes_before: before,
        table_bytes_after: size(),
    })
}

async fn compare(server: &PostgresServer, connections: usize, effort: Effort) -> Result<Cycles, Failure> {
    let url = server.url("postgres");
    let as_app = url.replace("postgres@", "app@");
    let rows = try_join_all((0..connections).map(|number| connect(&url, number))).await?;
    let direct = try_join_all((0..connections).map(|number| locks(&url, number))).await?;
    let functions = try_join_all((0..connections).map(|number| locks(&as_app, number))).await?;
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..effort.pairs {
        // The order of the three changes, so that none always follows another.
        for turn in 0..3 {
            let which = (round + turn) % 3;
            rates[which].push(match which {
                0 => rate(&rows, effort.span).await?,
                1 => rate(&direct, effort.span).await?,
                _ => rate(&functions, effort.span).await?,
            });
        }
    }
    let [by_hand, direct, functions] = rates.map(median);
    let (direct_ratio, functions_ratio) = (direct / by_hand, functions / by_hand);
    Ok(Cycles { connections, by_hand, direct, functions, direct_ratio, functions_ratio })
}

/// One way to take a lock and to free it, over a connection of its own.
trait Cycle: Send + Sync {
    fn cycle(&self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Cycles in a second, of all connections together.
async fn rate<C: Cycle>(all: &[C], span: Duration) -> Result<f64, Failure> {
    let begun = Instant::now();
    let one = async |cycle: &C| {
        let mut done = 0_u32;
        while begun.elapsed() < span {
            cycle.cycle().await?;
            done += 1;
        }
        Ok::<_, Failure>(done)
    };
    let done: u32 = try_join_all(all.iter().map(one)).await?.into_iter().sum();
    Ok(f64::from(done) / begun.elapsed().as_secs_f64())
}

struct ByHand {
    client: Client,
    take: Statement,
    free: Statement,
    key: String,
}

async fn connect(url: &str, number: usize) -> Result<ByHand, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let take = "UPDATE by_hand SET holder = $2, ends = now() + interval '30 s', fence = fence + 1 \
                WHERE key = $1 AND ends <= now() RETURNING fence";
    let free = "UPDATE by_hand SET holder = NULL, ends = '-infinity' WHERE key = $1 AND holder = $2";
    let (take, free) = (client.prepare(take).await?, client.prepare(free).await?);
    Ok(ByHand { client, take, free, key: format!("k{number}") })
}

impl Cycle for ByHand {
    async fn cycle(&self) -> Result<(), Failure> {
        let holder = &[7_u8; 16][..];
        let taken = self.client.query(&self.take, &[&self.key, &holder]).await?.len();
        let freed = self.client.execute(&self.free, &[&self.key, &holder]).await?;
        assert_eq!((taken, freed), (1, 1), "it is free");
        Ok(())
    }
}

struct Locks {
    backend: Postgres,
    claim: Claim,
}

async fn locks(url: &str, number: usize) -> Result<Locks, Failure> {
    Ok(Locks { backend: Postgres::open(url).await?, claim: claim(&format!("k{number}"), LONG) })
}

impl Cycle for Locks {
    async fn cycle(&self) -> Result<(), Failure> {
        let Acquire::Granted { .. } = self.backend.acquire(&self.claim).await.answer? else { panic!("it is free") };
        let released = self.backend.release(&self.claim.key, &self.claim.holder.id).await?;
        assert_eq!(released, Release::Released);
        Ok(())
    }
}

/// Microseconds of each durable update.
async fn each_update(row: &ByHand, times: usize) -> Result<Vec<f64>, Failure> {
    let update = row.client.prepare("UPDATE by_hand SET fence = fence + 1 WHERE key = $1").await?;
    let mut spans = Vec::new();
    for _ in 0..times {
        let begun = Instant::now();
        row.client.execute(&update, &[&row.key]).await?;
        spans.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(spans)
}

/// Sends the moment of each hand-off.
#[derive(Debug)]
struct Heard(UnboundedSender<Instant>);

impl Listener for Heard {
    fn event(&self, event: &Event) {
        if matches!(event, Event::Handed { .. }) {
            let _ = self.0.send(Instant::now());
        }
    }
}

/// Microseconds from each release to the event of the waiter.
async fn hand_offs(url: &str, times: usize) -> Result<Vec<f64>, Failure> {
    let (one, other) = (Postgres::open(url).await?, Postgres::open(url).await?);
    let (sender, mut heard) = unbounded_channel();
    let listener: Arc<dyn Listener> = Arc::new(Heard(sender));
    other.listen(Arc::clone(&listener));
    let mut spans = Vec::new();
    for _ in 0..times {
        let (held, waits) = (claim("hand-off", LONG), claim("hand-off", LONG));
        one.acquire(&held).await.answer?;
        other.acquire(&waits.with_intent(Intent::Enqueue)).await.answer?;
        let begun = Instant::now();
        one.release(&held.key, &held.holder.id).await?;
        let heard = heard.recv().await.ok_or(std::io::Error::other("the listener is gone"))?;
        spans.push((heard - begun).as_secs_f64() * 1e6);
        other.release(&waits.key, &waits.holder.id).await?;
    }
    Ok(spans)
}

impl fmt::Display for OnPostgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "PostgreSQL {}", self.version)?;
        for cycles in &self.cycles {
            let Cycles { connections, by_hand, direct, functions, direct_ratio, functions_ratio } = cycles;
            writeln!(
                f,
                "{connections:>3} connections: by hand {by_hand:.0}/s, fencelock {direct:.0}/s ({direct_ratio:.2}), \
                 with functions only {functions:.0}/s ({functions_ratio:.2})"
            )?;
        }
        writeln!(
            f,
            "a durable update {:.0} us, a hand-off {:.0} us ({:.1})",
            self.update_us, self.hand_off_us, self.hand_off_ratio
        )?;
        writeln!(
            f,
            "{:.0} bytes of WAL for a cycle; the table has {} bytes, and {} afterwards",
            self.wal_bytes, self.table_bytes_before, self.table_bytes_after
        )
    }
}
