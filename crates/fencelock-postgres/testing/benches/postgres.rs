//! A lock on PostgreSQL, against the row that is written by hand: `UPDATE ... WHERE` it is free, and another `UPDATE` to free it; against
//! the advisory locks of its sessions, which write nothing; and against other libraries, if `scripts/bench-peers` has installed them.
//!
//! `scripts/bench-peers --postgres`, with `-- --quick` for a short run.
#![allow(missing_docs)]

use fencelock::backends::Postgres;
use fencelock::contract::{Acquire, Claim, Release};
use fencelock::{Backend, Client};
use fencelock_bench::report::{Local, median, percentile};
use fencelock_bench::{Effort, Failure, local, with_arguments};
use fencelock_postgres_testing::PostgresServer;
use fencelock_testkit::claim;
use fencelock_testkit::programs::installed;
use futures_util::future::{LocalBoxFuture, try_join_all};
use std::fmt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{NoTls, Statement};

const CONNECTIONS: [usize; 2] = [1, 16];
const LONG: Duration = Duration::from_secs(60);
/// Programs that print how many cycles a second they have done, given a URL, connections and milliseconds.
const PEERS: [(&str, &str); 1] =
    [("distributed-lock", "bench/distributed-lock/release/fencelock-cycles-distributed-lock")];

/// Cycles in a second of one way, the median of rounds in which all ways alternate.
#[derive(Debug)]
struct Cycles {
    way: &'static str,
    connections: usize,
    per_s: f64,
    /// To the row by hand.
    ratio: f64,
}

#[derive(Debug)]
struct OnPostgres {
    version: String,
    cycles: Vec<Cycles>,
    /// A durable update of one row, in microseconds.
    update_us: f64,
    /// From the release to the return of the acquire of another client.
    hand_off_us: f64,
    hand_off_p99_us: f64,
    hand_off_ratio: f64,
    one_key: Local,
    /// Bytes of the log of the server for a cycle.
    wal_bytes: f64,
}

fn main() -> ExitCode {
    with_arguments(|effort| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(measure(effort))
    })
}

async fn measure(effort: Effort) -> Result<OnPostgres, Failure> {
    // What is reported is on the disk.
    let server = PostgresServer::start(&["fsync=on"]).map_err(std::io::Error::other)?;
    let url = with_tables(&server).await?;
    server.sql(
        "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA fencelock TO app; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fencelock TO app",
    );
    let mut cycles = Vec::new();
    for connections in CONNECTIONS {
        cycles.extend(compare(&server, connections, effort).await?);
    }
    let (update_us, mut spans) = alternate(&url, if effort.is_quick() { 100 } else { 1000 }).await?;
    let hand_off_us = percentile(&mut spans, 50.0);
    let position = server.sql("SELECT pg_current_wal_lsn()");
    let direct = [locks(&url, 0).await?];
    let done = rate(&direct, effort.span).await? * effort.span.as_secs_f64();
    let written: f64 =
        server.sql(&format!("SELECT pg_current_wal_lsn() - '{position}'::pg_lsn")).parse().unwrap_or_default();
    Ok(OnPostgres {
        version: server.sql("SHOW server_version"),
        cycles,
        update_us,
        hand_off_us,
        hand_off_p99_us: percentile(&mut spans, 99.0),
        hand_off_ratio: hand_off_us / update_us,
        one_key: local::compare("PostgreSQL", &patient(&url), effort).await?,
        wal_bytes: written / done,
    })
}

/// Makes both tables. Returns a URL for either.
async fn with_tables(server: &PostgresServer) -> Result<String, Failure> {
    let url = server.url("postgres");
    Postgres::open(&patient(&url)).await?;
    server.sql(
        "CREATE TABLE by_hand (key text PRIMARY KEY, holder bytea, ends timestamptz NOT NULL, fence bigint NOT NULL) WITH (fillfactor = 50); \
         INSERT INTO by_hand SELECT 'k' || n, NULL, '-infinity', 0 FROM generate_series(0, 63) n",
    );
    Ok(url)
}

/// The URL for a lock, which waits for a busy disk.
fn patient(url: &str) -> String {
    format!("{url}?create=true&timeout=60000")
}

/// A way to do cycles for a span, and its rates.
struct Way {
    name: &'static str,
    run: Box<dyn Fn(Duration) -> LocalBoxFuture<'static, Result<f64, Failure>>>,
    rates: Vec<f64>,
}

impl Way {
    fn of<C: Cycle + 'static>(name: &'static str, cycles: Vec<C>) -> Self {
        let cycles: Arc<[C]> = cycles.into();
        let run = move |span| -> LocalBoxFuture<'static, _> {
            let cycles = Arc::clone(&cycles);
            Box::pin(async move { rate(&cycles, span).await })
        };
        Self { name, run: Box::new(run), rates: Vec::new() }
    }

    /// Another program.
    fn peer(name: &'static str, program: &str, url: &str, connections: usize) -> Option<Self> {
        let program = installed(program).map_err(|missing| eprintln!("SKIPPED {name}: {missing}")).ok()?;
        let url = url.to_owned();
        let run = move |span: Duration| -> LocalBoxFuture<'static, _> {
            let mut command = Command::new(&program);
            command.args([&url, &connections.to_string(), &span.as_millis().to_string()]);
            Box::pin(async move {
                let output = tokio::task::spawn_blocking(move || command.output()).await??;
                let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                printed.parse().map_err(|_| format!("{printed} {}", String::from_utf8_lossy(&output.stderr)).into())
            })
        };
        Some(Self { name, run: Box::new(run), rates: Vec::new() })
    }
}

async fn compare(server: &PostgresServer, connections: usize, effort: Effort) -> Result<Vec<Cycles>, Failure> {
    let url = server.url("postgres");
    let as_app = url.replace("postgres@", "app@");
    let numbers = 0..connections;
    let mut ways = vec![
        Way::of("by hand", try_join_all(numbers.clone().map(|number| by_hand(&url, number))).await?),
        Way::of("fencelock", try_join_all(numbers.clone().map(|number| locks(&url, number))).await?),
        Way::of("with functions only", try_join_all(numbers.clone().map(|number| locks(&as_app, number))).await?),
        Way::of("advisory", try_join_all(numbers.map(|number| advisory(&url, number))).await?),
    ];
    ways.extend(PEERS.into_iter().filter_map(|(name, program)| Way::peer(name, program, &url, connections)));
    let count = ways.len();
    for round in 0..effort.pairs {
        // The order changes, so that none always follows another.
        for turn in 0..count {
            let way = &mut ways[(round + turn) % count];
            way.rates.push((way.run)(effort.span).await?);
        }
    }
    let of_row = median(ways[0].rates.clone());
    let cycles = ways.into_iter().map(|Way { name, rates, .. }| {
        let per_s = median(rates);
        Cycles { way: name, connections, per_s, ratio: per_s / of_row }
    });
    Ok(cycles.collect())
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

/// Two statements on a session of their own.
struct ByHand {
    client: tokio_postgres::Client,
    take: Statement,
    free: Statement,
    key: String,
    /// What the statements need beside the key.
    holder: Option<Vec<u8>>,
}

async fn by_hand(url: &str, number: usize) -> Result<ByHand, Failure> {
    let take = "UPDATE by_hand SET holder = $2, ends = now() + interval '30 s', fence = fence + 1 \
                WHERE key = $1 AND ends <= now() RETURNING fence";
    let free = "UPDATE by_hand SET holder = NULL, ends = '-infinity' WHERE key = $1 AND holder = $2 RETURNING key";
    statements(url, number, take, free, Some(vec![7; 16])).await
}

/// A lock of a session, as programs take it with a connection of their pool.
async fn advisory(url: &str, number: usize) -> Result<ByHand, Failure> {
    let [take, free] = ["lock", "unlock"].map(|verb| format!("SELECT pg_advisory_{verb}(hashtextextended($1, 0))"));
    statements(url, number, &take, &free, None).await
}

async fn statements(
    url: &str,
    number: usize,
    take: &str,
    free: &str,
    holder: Option<Vec<u8>>,
) -> Result<ByHand, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let (take, free) = (client.prepare(take).await?, client.prepare(free).await?);
    Ok(ByHand { client, take, free, key: format!("k{number}"), holder })
}

impl Cycle for ByHand {
    async fn cycle(&self) -> Result<(), Failure> {
        let key: &(dyn ToSql + Sync) = &self.key;
        let holder = self.holder.as_ref().map(|holder| holder as &(dyn ToSql + Sync));
        let values: Vec<_> = [key].into_iter().chain(holder).collect();
        let taken = self.client.query(&self.take, &values).await?.len();
        let freed = self.client.query(&self.free, &values).await?.len();
        assert_eq!((taken, freed), (1, 1), "it is free");
        Ok(())
    }
}

struct Locks {
    backend: Postgres,
    claim: Claim,
}

async fn locks(url: &str, number: usize) -> Result<Locks, Failure> {
    Ok(Locks { backend: Postgres::open(&patient(url)).await?, claim: claim(&format!("k{number}"), LONG) })
}

impl Cycle for Locks {
    async fn cycle(&self) -> Result<(), Failure> {
        let Acquire::Granted { .. } = self.backend.acquire(&self.claim).await.answer? else { panic!("it is free") };
        let released = self.backend.release(&self.claim.key, &self.claim.holder.id).await?;
        assert_eq!(released, Release::Released);
        Ok(())
    }
}

/// The median of durable updates in microseconds, and those of each hand-off, which alternate.
async fn alternate(url: &str, times: u32) -> Result<(f64, Vec<u64>), Failure> {
    let row = by_hand(url, 0).await?;
    let update = row.client.prepare("UPDATE by_hand SET fence = fence + 1 WHERE key = $1").await?;
    let (one, other) = (Client::connect(&patient(url)).await?, Client::connect(&patient(url)).await?);
    let (mut updates, mut spans) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let begun = Instant::now();
        row.client.execute(&update, &[&row.key]).await?;
        updates.push(begun.elapsed().as_secs_f64() * 1e6);
        let guard = one.lock("hand-off").ttl(LONG).acquire().await?;
        let (sender, mut waits) = unbounded_channel();
        let lock = other.lock("hand-off").ttl(LONG).wait(LONG).on_wait(move |_| _ = sender.send(()));
        let waiter = tokio::spawn(async move { lock.acquire().await.map(|guard| (Instant::now(), guard)) });
        waits.recv().await.ok_or("the key was free")?;
        let begun = Instant::now();
        guard.release().await?;
        let (started, guard) = waiter.await??;
        spans.push(u64::try_from((started - begun).as_micros())?);
        guard.release().await?;
    }
    Ok((median(updates), spans))
}

impl fmt::Display for OnPostgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "PostgreSQL {}", self.version)?;
        for Cycles { way, connections, per_s, ratio } in &self.cycles {
            writeln!(f, "{connections:>3} connections, {way}: {per_s:.0}/s ({ratio:.2})")?;
        }
        let Self { update_us, hand_off_us, hand_off_p99_us, hand_off_ratio, one_key, .. } = self;
        writeln!(
            f,
            "a durable update {update_us:.0} us, a hand-off {hand_off_us:.0} us ({hand_off_ratio:.2}), p99 {hand_off_p99_us:.0} us"
        )?;
        let Local { tasks, shared_per_s, alone_per_s, .. } = one_key;
        writeln!(f, "one key, {tasks} tasks: {shared_per_s:.0} grants/s, {alone_per_s:.0} if each claims")?;
        writeln!(f, "{:.0} bytes of WAL for a cycle", self.wal_bytes)
    }
}
