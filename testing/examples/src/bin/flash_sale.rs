//! One piece in stock, hundreds of buyers at once. See `--help`.
#![forbid(unsafe_code)]

use clap::Parser;
use fencelock::Clock;
use fencelock::backends::BootClock;
use fencelock_examples::Failure;
use fencelock_examples::door::{Door, default_url, leave};
use fencelock_examples::ledger::{Ledger, REFUSED, WRITTEN};
use fencelock_examples::workers::{await_start, finish, run_together, spawn};
use fencelock_lab::workers::start;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

/// The one thing that is sold, which is also the name of the lock.
const ITEM: &str = "sku:0001";

/// A flash sale: hundreds of buyers in several processes want the few pieces in stock, all at once.
///
/// Each of them reads the stock, thinks, and if there was any writes the stock less one. With `--lock none` several read
/// the same piece before the first has written, and the shop sells what it does not have.
#[derive(Debug, Parser)]
struct Arguments {
    /// Pieces in stock.
    #[arg(long, default_value_t = 1)]
    stock: u32,
    /// Buyers altogether.
    #[arg(long, default_value_t = 300)]
    buyers: u32,
    /// Processes that they are spread over.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// Where the lock lives, as `file:DIR` or `redis://HOST`, or `none` [default: a file in a temporary directory]
    #[arg(long, value_name = "URL")]
    lock: Option<String>,
    /// Milliseconds between reading and writing.
    #[arg(long, value_name = "MS", default_value_t = 20)]
    think: u64,
    /// Milliseconds that the lock outlives a holder that sleeps [default: 30000, with --overrun 1500]
    #[arg(long, value_name = "MS")]
    ttl: Option<u64>,
    /// Tell another story: one buyer falls asleep before writing, for longer than its lease; another one buys meanwhile.
    #[arg(long)]
    overrun: bool,
    /// Let the database write whatever comes, without looking at the fencing token.
    #[arg(long)]
    no_fence: bool,
    /// The job of a process that this program started: how many buyers to be.
    #[arg(long, hide = true)]
    worker: Option<u32>,
    /// The database of that job.
    #[arg(long, hide = true)]
    database: Option<PathBuf>,
    /// What that job's buyers are called.
    #[arg(long, hide = true, default_value = "")]
    name: String,
    /// That job's buyer stops the process before writing.
    #[arg(long, hide = true)]
    sleepy: bool,
}

impl Arguments {
    /// Long, for no ordinary pause to end it; but whoever waits for a sleeper should not have to wait for long.
    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl.unwrap_or(if self.overrun { 1500 } else { 30_000 }))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.worker {
        Some(buyers) => work(&arguments, buyers),
        None => tell(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("flash_sale: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The whole story, from opening the shop to reading its books.
fn tell(arguments: &Arguments) -> Result<(), Failure> {
    let dir = tempfile::Builder::new().prefix("flash-sale-").tempdir()?;
    let database = dir.path().join("shop.db");
    let lock = arguments.lock.clone().unwrap_or_else(|| default_url(dir.path()));
    let shop = Ledger::create(&database, arguments.stock.into())?;
    let job = |buyers: u32, name: &str| job(arguments, &database, &lock, buyers, name);

    let begun = BootClock.now();
    if arguments.overrun {
        println!("flash sale with {} in stock: a buyer falls asleep in front of the till", arguments.stock);
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

/// One buyer's process is stopped between its decision and its write. Another one buys when the lease has run out. Then
/// the first wakes up and writes.
fn overrun(job: &impl Fn(u32, &str) -> Vec<String>) -> Result<(), Failure> {
    let mut sleepy = job(1, "the sleeper");
    sleepy.push("--sleepy".into());
    let mut sleeper = spawn(&sleepy)?;
    start(std::slice::from_mut(&mut sleeper))?;
    let pid = Pid::from_raw(i32::try_from(sleeper.pid())?).ok_or("a process without a number")?;
    match waitpid(Some(pid), WaitOptions::UNTRACED)? {
        Some((_, status)) if status.stopped() => {}
        _ => return Err("the sleeper ended before it could be stopped".into()),
    }
    run_together(&[job(1, "the quick one")])?;
    kill_process(pid, Signal::CONT)?;
    finish(sleeper)
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
        0 => println!("Nobody paid for a piece that is not there."),
        n => println!("{n} paid for a piece that is not there."),
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
            door: Door::of(arguments.lock.as_deref().unwrap_or_default()).await?,
            name: arguments.name.clone(),
            think: Duration::from_millis(arguments.think),
            ttl: arguments.ttl(),
            fenced: !arguments.no_fence,
            sleepy: arguments.sleepy,
        });
        if buyer.sleepy && !buyer.door.expires() {
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

/// What the buyers of a process have in common.
struct Buyer {
    shop: RefCell<Ledger>,
    door: Door,
    name: String,
    think: Duration,
    ttl: Duration,
    fenced: bool,
    sleepy: bool,
}

impl Buyer {
    async fn buy(self: Rc<Self>) -> Result<(), Failure> {
        let guard = self.door.enter(ITEM, self.ttl).await?;
        let token = guard.as_ref().filter(|_| self.fenced).map(fencelock::Guard::fencing_token);
        let pieces = self.shop.borrow().number()?;
        if pieces > 0 {
            tokio::time::sleep(self.think).await;
            if self.sleepy {
                eprintln!("  {} has the lock, sees {pieces} in stock, and falls asleep", self.name);
                // All threads with it: a stop of the world, a suspended laptop, a machine that swaps.
                kill_process(getpid(), Signal::STOP)?;
            }
            let is_sold = self.shop.borrow_mut().write(&self.name, pieces - 1, token)?;
            if self.sleepy || !is_sold {
                let verdict = if is_sold {
                    "the database takes it"
                } else {
                    "refused, the database has seen a greater fencing token"
                };
                eprintln!("  {} wakes up and writes {}: {}", self.name, pieces - 1, verdict);
            }
        }
        if let Some(why) = leave(guard).await? {
            eprintln!("  {} learns that {why}", self.name);
        }
        Ok(())
    }
}
