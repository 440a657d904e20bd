//! Runs libraries one after the other.

use super::known::Peer;
use super::plan::{CELLS, Cell, Effort, SALE};
use super::run::Run;
use crate::Failure;
use crate::load;
use crate::report::machine;
use fencelock_load::workers::WorkerPool;
use fencelock_load::{LoadReport, Plan, Sale};
use fencelock_testkit::RedisServer;
use std::fs::File;
use std::io;
use std::process::Command;
use std::time::Duration;

/// Measures all peers in all cells. A missing or failing peer is reported, and does not end the run.
pub(crate) fn measure(server: &RedisServer, peers: &[&'static Peer], effort: Effort) -> Result<Run, Failure> {
    let (mut present, mut absent, mut measured) = (Vec::new(), Vec::new(), Vec::new());
    for &peer in peers {
        match peer.version() {
            Ok(version) => {
                // A sale has no warm-up.
                let sale = sell(server, peer, effort.span + peer.warm_up, STOCK).map_err(|error| error.to_string());
                println!("{}: {version}; {sale:?}", peer.title);
                present.push((peer, version, sale));
            }
            Err(why) => {
                println!("SKIPPED {}: {why}", peer.title);
                absent.push((peer, why));
            }
        }
    }
    for cell in CELLS {
        println!("\n{:?}, {} processes x {} tasks", cell.workload, cell.processes, cell.tasks);
        for (peer, ..) in &present {
            let report = one(server, peer, cell, effort).map_err(|error| error.to_string());
            println!("{:>24} {:?}", peer.title, report.as_ref().map(|report| report.grants_per_s.round()));
            measured.push((*peer, cell, report));
        }
    }
    clear(server)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let local_shared_per_s = runtime.block_on(crate::local::shared_locks(&server.url(), effort.span))?;
    let machine = machine(server);
    Ok(Run { when: month(), machine, effort, present, absent, measured, local_shared_per_s })
}

fn one(server: &RedisServer, peer: &Peer, cell: Cell, effort: Effort) -> Result<LoadReport, Failure> {
    let mut plan = plan(server, peer, cell);
    (plan.warm_up, plan.span) = (effort.warm_up + peer.warm_up, effort.span);
    work(server, peer, &plan)
}

/// More than can be sold during the measurement.
const STOCK: u64 = 1_000_000;

/// Two processes sell from one stock, until nothing is left or the time is over; only the lock prevents overlapping sales.
///
/// # Errors
/// If the sale failed, or sold nothing, which would prove nothing.
pub fn sell(server: &RedisServer, peer: &Peer, span: Duration, stock: u64) -> Result<Sale, Failure> {
    let mut plan = plan(server, peer, SALE);
    (plan.span, plan.stock) = (span, stock);
    let report = work(server, peer, &plan)?;
    let sale = report.sale.ok_or("the sale has no ledger")?;
    match report.first_error {
        Some(error) => Err(error.into()),
        None if sale.sold == 0 => Err("nothing was sold".into()),
        None => Ok(sale),
    }
}

fn plan(server: &RedisServer, peer: &Peer, cell: Cell) -> Plan {
    let cell = if peer.single { cell.single() } else { cell };
    let mut plan = Plan::new(server.url(), cell.workload);
    (plan.processes, plan.tasks) = (cell.processes, cell.tasks);
    plan.unshared = peer.ours() == Some(false);
    plan
}

fn work(server: &RedisServer, peer: &Peer, plan: &Plan) -> Result<LoadReport, Failure> {
    clear(server)?;
    let command = peer.command()?;
    let (program, arguments) = command.split_first().ok_or("no program")?;
    let start = || {
        let mut worker = Command::new(program);
        worker.args(arguments).stderr(complaints()?);
        if peer.ours().is_some() {
            worker.env(load::WORKER, "1");
        }
        Ok(worker)
    };
    Ok(fencelock_load::measure(plan, &WorkerPool::default(), &start)?)
}

/// The error output of workers, which is shown only if one of them fails.
fn complaints() -> io::Result<File> {
    File::options().create(true).append(true).open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench-peers.log"))
}

/// Removes the keys of the previous library, because its workers are killed during their work.
fn clear(server: &RedisServer) -> Result<(), Failure> {
    match server.command(&["FLUSHALL"]).text() {
        Some("OK") => Ok(()),
        _ => Err("the server could not be emptied".into()),
    }
}

fn month() -> String {
    let output = Command::new("date").args(["-u", "+%B %Y"]).env("LC_ALL", "C").output();
    output.map_or_else(
        |_| "at an unknown date".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
