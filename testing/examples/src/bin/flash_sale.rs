//! One item in stock, hundreds of concurrent buyers. See `--help`.
#![forbid(unsafe_code)]

use clap::Parser;
use fencelock::Clock;
use fencelock::backends::BootClock;
use fencelock_examples::access::{Access, default_url, leave};
use fencelock_examples::ledger::{Ledger, REFUSED, WRITTEN};
use fencelock_examples::workers::{await_start, finish, run_together, spawn};
use fencelock_examples::{Failure, exit_code};
use fencelock_load::workers::start;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

/// The item, which is also the name of the lock.
const ITEM: &str = "sku:0001";

/// A flash sale: hundreds of buyers in several processes buy from a small stock concurrently
///
/// Each of them reads the stock, waits, and if it was positive writes the stock minus one. With `--lock none` several
/// buyers read the same stock before the first has written, and the shop sells more than it has.
#[derive(Debug, Parser)]
struct Arguments {
    /// The number of items in stock
    #[arg(long, default_value_t = 1)]
    stock: u32,
    /// The total number of buyers
    #[arg(long, default_value_t = 300)]
    buyers: u32,
    /// The number of processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// The lock, as `file:DIR` or `redis://HOST`, or `none` [default: a file in a temporary directory]
    #[arg(long, value_name = "URL")]
    lock: Option<String>,
    /// Milliseconds between reading and writing
    #[arg(long, value_name = "MS", default_value_t = 20)]
    think: u64,
    /// The TTL of the lock in milliseconds [default: 30000, with --overrun 1500]
    #[arg(long, value_name = "MS")]
    ttl: Option<u64>,
    /// A different scenario: one buyer is stopped before writing, for longer than its lease, while another one buys
    #[arg(long)]
    overrun: bool,
    /// Do not check the fencing token in the database
    #[arg(long)]
    no_fence: bool,
    /// The job of a child process: the number of its buyers
    #[arg(long, hide = true)]
    worker: Option<u32>,
    /// The database of that job
    #[arg(long, hide = true)]
    database: Option<PathBuf>,
    /// The name of the buyers of that job
    #[arg(long, hide = true, default_value = "")]
    name: String,
    /// The buyer of that job stops its process before writing
    #[arg(long, hide = true)]
    stops: bool,
}

impl Arguments {
    /// Long enough that no usual pause exceeds it, but short for the scenario in which another buyer waits for it.
    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl.unwrap_or(if self.overrun { 1500 } else { 30_000 }))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.worker {
        Some(buyers) => work(&arguments, buyers),
        None => run(&arguments),
    };
    exit_code("flash_sale", done)
}

/// The whole example, from opening the shop to reading its ledger.
fn run(arguments: &Arguments) -> Result<(), Failure> {
    let dir = tempfile::Builder::new().prefix("flash-sale-").tempdir()?;
    let database = dir.path().join("shop.db");
    let lock = arguments.lock.clone().unwrap_or_else(|| default_url(dir.path()));
    let shop = Ledger::create(&database, arguments.stock.into())?;
    let job = |buyers: u32, name: &str| job(arguments, &database, &lock, buyers, name);

    let begun = BootClock.now();
    if arguments.overrun {
        println!("flash sale with {} in stock: a buyer is stopped before it writes", arguments.stock);
        overrun(&job)?;
    } else {
        let (buyers, processes) = (arguments.buyers, arguments.processes);
        println!("flash sale with {} in stock: {buyers} buyers in {processes} processes", arguments.stock);
        let share = |i: u32| buyers / processes + u32::from(i < buyers % processes);
        let jobs: Vec<_> = (0..processes).map(|i| job(share(i), &format!("process {i}"))).collect();
        run_together(&jobs)?;
    }
    report(arguments, &shop, BootClock.now().since(begun))
}

/// The arguments of a process of buyers.
fn job(arguments: &Arguments, database: &Path, lock: &str, buyers: u32, name: &str) -> Vec<String> {
    let mut job: Vec<String> =
        ["--worker", &buyers.to_string(), "--name", name, "--lock", lock].map(str::to_owned).into();
    job.extend([
        "--think".into(),
        arguments.think.to_string(),
        "--ttl".into(),
        arguments.ttl().as_millis().to_string(),
    ]);
    job.extend(["--database".into(), database.display().to_string()]);
    job.extend(arguments.no_fence.then(|| "--no-fence".into()));
    job
}

/// One buyer's process is stopped between its decision and its write. Another one buys after the lease has expired. Then
/// the first one continues and writes.
fn overrun(job: &impl Fn(u32, &str) -> Vec<String>) -> Result<(), Failure> {
    let mut stopping = job(1, "the stopped buyer");
    stopping.push("--stops".into());
    let mut stopped = spawn(&stopping)?;
    start(std::slice::from_mut(&mut stopped))?;
    let pid = Pid::from_raw(i32::try_from(stopped.pid())?).ok_or("a process without a number")?;
    match waitpid(Some(pid), WaitOptions::UNTRACED)? {
        Some((_, status)) if status.stopped() => {}
        _ => return Err("the buyer exited before it stopped".into()),
    }
    run_together(&[job(1, "the other buyer")])?;
    kill_process(pid, Signal::CONT)?;
    finish(stopped)
}

fn report(arguments: &Arguments, shop: &Ledger, took: Duration) -> Result<(), Failure> {
    let sold = shop.count(WRITTEN)?;
    let oversold = (sold - i64::from(arguments.stock)).max(0);
    println!("  sold            {sold}");
    println!("  stock left      {}", shop.number()?);
    println!("  oversold by     {oversold}");
    println!("  refused writes  {}", shop.count(REFUSED)?);
    println!("  time            {:.2} s", took.as_secs_f64());
    match oversold {
        0 => println!("No item was sold twice."),
        n => println!("{n} buyers paid for an item that was not in stock."),
    }
    Ok(())
}

/// A process of buyers.
fn work(arguments: &Arguments, buyers: u32) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let database = arguments.database.as_deref().ok_or("a worker needs a database")?;
        let buyer = Rc::new(Buyer {
            shop: RefCell::new(Ledger::open(database)?),
            access: Access::of(arguments.lock.as_deref().unwrap_or_default()).await?,
            name: arguments.name.clone(),
            think: Duration::from_millis(arguments.think),
            ttl: arguments.ttl(),
            fenced: !arguments.no_fence,
            stops: arguments.stops,
        });
        if buyer.stops && !buyer.access.expires() {
            return Err("only a lock with a lease can be overrun: use --lock redis://HOST".into());
        }
        await_start()?;
        let tasks: Vec<_> = (0..buyers).map(|_| tokio::task::spawn_local(Rc::clone(&buyer).buy())).collect();
        for task in tasks {
            task.await??;
        }
        Ok(())
    })
}

/// The shared state of the buyers of a process.
struct Buyer {
    shop: RefCell<Ledger>,
    access: Access,
    name: String,
    think: Duration,
    ttl: Duration,
    fenced: bool,
    stops: bool,
}

impl Buyer {
    async fn buy(self: Rc<Self>) -> Result<(), Failure> {
        let guard = self.access.enter(ITEM, self.ttl).await?;
        let token = guard.as_ref().filter(|_| self.fenced).map(fencelock::Guard::fencing_token);
        let pieces = self.shop.borrow().number()?;
        if pieces > 0 {
            tokio::time::sleep(self.think).await;
            if self.stops {
                eprintln!("  {} holds the lock, reads a stock of {pieces}, and is stopped", self.name);
                // This stops all threads, like a suspended laptop or a machine that swaps.
                kill_process(getpid(), Signal::STOP)?;
            }
            let is_sold = self.shop.borrow_mut().write(&self.name, pieces - 1, token)?;
            if self.stops || !is_sold {
                let verdict =
                    if is_sold { "accepted" } else { "rejected, the database has seen a greater fencing token" };
                eprintln!("  {} continues and writes {}: {}", self.name, pieces - 1, verdict);
            }
        }
        if let Some(why) = leave(guard).await? {
            eprintln!("  {} detects that {why}", self.name);
        }
        Ok(())
    }
}
