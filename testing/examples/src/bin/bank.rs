//! A balance of 1000 with concurrent payments of 500 and 300. See `--help`.
#![forbid(unsafe_code)]

use clap::Parser;
use fencelock_examples::access::{Access, default_url, leave};
use fencelock_examples::ledger::Ledger;
use fencelock_examples::workers::{await_start, run_together};
use fencelock_examples::{Failure, exit_code};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The account, which is also the name of the lock.
const ACCOUNT: &str = "account:0001";

/// The record of a clerk that has read the balance.
const READ: &str = "read";

/// A bank account: several clerks, each a process, make payments from it concurrently
///
/// Each of them reads the balance, gives the others time to read it too, and writes what is left. With `--lock none`
/// all have read the same balance before the first writes, so all but the last write are lost, every time.
#[derive(Debug, Parser)]
struct Arguments {
    /// The initial balance
    #[arg(long, default_value_t = 1000)]
    balance: i64,
    /// An amount to pay, one for each clerk
    #[arg(long, value_name = "AMOUNT", default_values_t = [500, 300])]
    spend: Vec<i64>,
    /// The lock, as `file:DIR` or `redis://HOST`, or `none` [default: a file in a temporary directory]
    #[arg(long, value_name = "URL")]
    lock: Option<String>,
    /// How long a clerk waits for the others to read the balance too, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    patience: u64,
    /// The job of a child process: the number of a clerk
    #[arg(long, hide = true)]
    worker: Option<usize>,
    /// The database of that job
    #[arg(long, hide = true)]
    database: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.worker {
        Some(clerk) => work(&arguments, clerk),
        None => run(&arguments),
    };
    exit_code("bank", done)
}

/// The whole example, from opening the account to its last balance.
fn run(arguments: &Arguments) -> Result<(), Failure> {
    let dir = tempfile::Builder::new().prefix("bank-").tempdir()?;
    let database = dir.path().join("bank.db");
    let lock = arguments.lock.clone().unwrap_or_else(|| default_url(dir.path()));
    let account = Ledger::create(&database, arguments.balance)?;
    let mut common = vec!["--lock".into(), lock, "--database".into(), database.display().to_string()];
    common.extend(["--patience".into(), arguments.patience.to_string()]);
    common.extend(arguments.spend.iter().map(|amount| format!("--spend={amount}")));
    let jobs: Vec<_> = (0..arguments.spend.len())
        .map(|clerk| [vec!["--worker".into(), clerk.to_string()], common.clone()].concat())
        .collect();
    let amounts: Vec<_> = arguments.spend.iter().map(i64::to_string).collect();
    println!("an account of {}, with concurrent payments of {}", arguments.balance, amounts.join(" and "));
    run_together(&jobs)?;
    let (balance, expected) = (account.number()?, arguments.balance - arguments.spend.iter().sum::<i64>());
    println!("  balance   {balance}");
    println!("  expected  {expected}");
    println!("  lost      {}", balance - expected);
    Ok(())
}

/// The process of a clerk.
fn work(arguments: &Arguments, clerk: usize) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut account = Ledger::open(arguments.database.as_deref().ok_or("a worker needs a database")?)?;
        let amount = arguments.spend.get(clerk).ok_or("a worker needs an amount")?;
        let access = Access::of(arguments.lock.as_deref().unwrap_or_default()).await?;
        await_start()?;

        let guard = access.enter(ACCOUNT, Duration::from_secs(30)).await?;
        let balance = account.number()?;
        let name = clerk.to_string();
        account.note(READ, &name)?;
        await_readers(&account, arguments).await?;
        if !account.write(&name, balance - amount, guard.as_ref().map(fencelock::Guard::fencing_token))? {
            return Err("the bank has seen a greater fencing token".into());
        }
        match leave(guard).await? {
            None => Ok(()),
            Some(why) => Err(format!("the lock was lost: {why}").into()),
        }
    })
}

/// Waits until all clerks have read the balance, or a time limit: with a lock, the others cannot read it.
async fn await_readers(account: &Ledger, arguments: &Arguments) -> Result<(), Failure> {
    let all = async {
        let clerks = i64::try_from(arguments.spend.len())?;
        while account.count(READ)? < clerks {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    };
    tokio::time::timeout(Duration::from_millis(arguments.patience), all).await.unwrap_or(Ok(()))
}
