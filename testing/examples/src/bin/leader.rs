//! A leader with a standby: start it twice with two values, and kill the one that leads. See `--help`.
#![forbid(unsafe_code)]

use clap::Parser;
use fencelock::{Client, Held, Observation};
use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;
use tokio::time::sleep;

/// A scheduler: one process works and the others stand by
///
/// Each process prints who leads. The leader prints each step of its work, with its term: a receiver of its writes
/// would refuse all smaller ones.
#[derive(Debug, Parser)]
struct Arguments {
    /// What this process publishes while it leads, such as its address
    value: String,
    /// Where the election takes place: `file:DIR` or `redis://HOST`
    #[arg(long, value_name = "URL")]
    lock: String,
    /// How long a term outlives a leader that dies, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    ttl: u64,
    /// The leader resigns after this many steps
    #[arg(long, value_name = "STEPS", default_value_t = 10)]
    steps: u32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { value, lock, ttl, steps } = Arguments::parse();
    let client = Client::connect(&lock).await?;
    let election = client.election("scheduler").value(value).ttl(Duration::from_millis(ttl));
    let mut observer = election.observe()?;
    tokio::spawn(async move {
        while let Some(observation) = observer.next().await {
            match observation {
                Observation::Leader(leader) => println!("leader: {leader}"),
                Observation::NoLeader => println!("leader: none"),
                other => println!("leader: unknown, {other:?}"),
            }
        }
    });
    election.run_while_leader(|held| work(held, steps)).await?;
    println!("resigned");
    client.close(Duration::from_secs(1)).await?;
    Ok(())
}

/// It is dropped at the end of the term, whatever it waits for.
async fn work(held: Held, steps: u32) -> Result<(), Infallible> {
    for step in 1..=steps {
        println!("term {}: step {step}", held.fencing_token());
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
