//! A guard for a small pool of connections, with slots that the database checks. See `--help`.
#![forbid(unsafe_code)]

use clap::Parser;
use fencelock::{Client, FencingToken};
use fencelock_examples::access::default_url;
use fencelock_examples::workers::{await_start, run_together};
use fencelock_examples::{Failure, exit_code};
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// A pool of connections: many processes share a few of them, and each connection has one user at a time
///
/// Each process takes a slot, uses the connection with the number of the slot, and releases it. The database keeps one fencing token
/// for each connection, and rejects a process whose slot belongs to a later one.
#[derive(Debug, Parser)]
struct Arguments {
    /// The number of connections
    #[arg(long, default_value_t = 3)]
    connections: u32,
    /// The number of processes
    #[arg(long, default_value_t = 12)]
    processes: u32,
    /// Where the slots are: `file:DIR` or `redis://HOST` [default: files in a temporary directory]
    #[arg(long, value_name = "URL")]
    lock: Option<String>,
    /// The job of a child process: its number
    #[arg(long, hide = true)]
    worker: Option<u32>,
    /// The database of that job
    #[arg(long, hide = true)]
    database: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.worker {
        Some(_) => work(&arguments),
        None => run(&arguments),
    };
    exit_code("pool", done)
}

/// All processes, and what the database has seen of them.
fn run(arguments: &Arguments) -> Result<(), Failure> {
    let dir = tempfile::Builder::new().prefix("pool-").tempdir()?;
    let database = dir.path().join("pool.db");
    let lock = arguments.lock.clone().unwrap_or_else(|| default_url(dir.path()));
    let pool = create(&database, arguments.connections)?;
    let mut common = vec!["--lock".into(), lock, "--database".into(), database.display().to_string()];
    common.push(format!("--connections={}", arguments.connections));
    let jobs: Vec<_> = (0..arguments.processes)
        .map(|number| [vec!["--worker".into(), number.to_string()], common.clone()].concat())
        .collect();
    println!("{} processes share {} connections", arguments.processes, arguments.connections);
    run_together(&jobs)?;
    let sums = "SELECT sum(uses), sum(users) FROM connections";
    let (uses, still_used): (i64, i64) = pool.query_row(sums, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    println!("  uses        {uses}");
    println!("  still used  {still_used}");
    Ok(())
}

/// One process.
fn work(arguments: &Arguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::connect(arguments.lock.as_deref().unwrap_or_default()).await?;
        let pool = open(arguments.database.as_deref().ok_or("a worker needs a database")?)?;
        let _harness = await_start()?;

        let slot = client.slots("pool", arguments.connections).acquire().await?;
        let (number, token) = (slot.slot(), slot.fencing_token());
        enter(&pool, number, token)?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        leave(&pool, number, token)?;
        slot.release().await?;
        Ok(())
    })
}

fn open(file: &Path) -> Result<Connection, Failure> {
    let db = Connection::open(file)?;
    db.busy_timeout(Duration::from_secs(30))?;
    // The example deletes its database, so it need not survive a power failure.
    db.execute_batch("PRAGMA synchronous = OFF")?;
    Ok(db)
}

fn create(file: &Path, connections: u32) -> Result<Connection, Failure> {
    let pool = open(file)?;
    pool.execute_batch(
        "CREATE TABLE connections (slot INTEGER PRIMARY KEY, fence INTEGER NOT NULL, users INTEGER NOT NULL,
         uses INTEGER NOT NULL);",
    )?;
    for slot in 0..connections {
        pool.execute("INSERT INTO connections VALUES (?1, 0, 0, 0)", [slot])?;
    }
    Ok(pool)
}

/// Uses a connection, unless a later holder of its slot has used it, or another process uses it now.
fn enter(pool: &Connection, slot: u32, token: FencingToken) -> Result<(), Failure> {
    let sql = "UPDATE connections SET fence = ?2, users = users + 1, uses = uses + 1
               WHERE slot = ?1 AND fence <= ?2 AND users = 0";
    changed_one(pool.execute(sql, params![slot, token.get().cast_signed()])?, slot)
}

fn leave(pool: &Connection, slot: u32, token: FencingToken) -> Result<(), Failure> {
    let sql = "UPDATE connections SET users = users - 1 WHERE slot = ?1 AND fence <= ?2";
    changed_one(pool.execute(sql, params![slot, token.get().cast_signed()])?, slot)
}

fn changed_one(rows: usize, slot: u32) -> Result<(), Failure> {
    if rows == 1 { Ok(()) } else { Err(format!("connection {slot} belongs to a later holder").into()) }
}
