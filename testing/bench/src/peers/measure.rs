//! Runs libraries one after the other.

use super::figures::Figures;
use super::known::Peer;
use super::plan::{CELLS, Cell, Effort, SALE};
use super::run::{Absent, Measured, Present, Run, Sale};
use crate::Failure;
use crate::load;
use crate::report::Machine;
use fencelock_load::workers::WorkerPool;
use fencelock_load::{LoadMode, LoadReport, Plan};
use fencelock_testkit::RedisServer;
use std::fs::File;
use std::io;
use std::process::Command;
use std::time::Duration;

/// Measures all peers in all cells. A missing or failing peer is reported, and does not end the run.
pub(crate) fn measure(server: &RedisServer, peers: &[&Peer], effort: Effort) -> Run {
    let mut run = Run {
        when: month(),
        machine: Machine::this_one(server),
        effort,
        present: Vec::new(),
        absent: Vec::new(),
        measured: Vec::new(),
        local_shared_per_s: None,
    };
    let mut taking_part = Vec::new();
    for peer in peers {
        match peer.version() {
            Ok(version) => {
                // A sale has no warm-up.
                let span = Duration::from_millis(effort.span_ms + peer.warm_up_ms);
                let sell = || sell(server, peer, span, STOCK).map_err(|error| error.to_string());
                let sale = peer.measures(LoadMode::Exclusive).then(sell);
                println!("{}: {version}; {}", peer.title, sale.as_ref().map_or_else(String::new, summary));
                run.present.push(Present { name: peer.name.to_owned(), version, sale });
                taking_part.push(peer);
            }
            Err(why) => {
                println!("SKIPPED {}: {why}", peer.title);
                run.absent.push(Absent { name: peer.name.to_owned(), why });
            }
        }
    }
    for cell in CELLS {
        println!("\n{:?}, {:?}, {} processes x {} tasks", cell.workload, cell.mode, cell.processes, cell.tasks);
        for peer in taking_part.iter().filter(|peer| peer.measures(cell.mode)) {
            let figures = one(server, peer, cell, effort).map_err(|error| error.to_string());
            println!("{:>24} {}", peer.title, in_short(&figures));
            run.measured.push(Measured { name: peer.name.to_owned(), cell, figures });
        }
    }
    run
}

fn one(server: &RedisServer, peer: &Peer, cell: Cell, effort: Effort) -> Result<Figures, Failure> {
    let mut plan = plan(server, peer, cell);
    plan.warm_up = Duration::from_millis(effort.warm_up_ms + peer.warm_up_ms);
    plan.span = Duration::from_millis(effort.span_ms);
    Ok(Figures::of(&work(server, peer, &plan)?))
}

/// Shared grants per second of one process with all cores.
pub(crate) fn local_shared(server: &RedisServer, effort: Effort) -> Result<f64, Failure> {
    clear(server)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let span = Duration::from_millis(effort.span_ms);
    let per_s = runtime.block_on(crate::local::shared_locks(&server.url(), span))?.round();
    println!("\n{per_s:.0} shared grants/s in this process");
    Ok(per_s)
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
        None => Ok(Sale { sold: sale.sold, oversold: sale.oversold }),
    }
}

fn plan(server: &RedisServer, peer: &Peer, cell: Cell) -> Plan {
    let cell = if peer.single { cell.single() } else { cell };
    let mut plan = Plan::new(server.url(), cell.workload);
    (plan.processes, plan.tasks, plan.mode) = (cell.processes, cell.tasks, cell.mode);
    plan.sharing.off = peer.ours() == Some(false);
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
    File::options().create(true).append(true).open(super::docs().join("../../../target/bench-peers.log"))
}

/// Removes the keys of the previous library, because its workers are killed during their work.
fn clear(server: &RedisServer) -> Result<(), Failure> {
    match server.command(&["FLUSHALL"]).text() {
        Some("OK") => Ok(()),
        _ => Err("the server could not be emptied".into()),
    }
}

fn summary(sale: &Result<Sale, String>) -> String {
    match sale {
        Ok(sale) if sale.is_exact() => format!("sold {} exactly", sale.sold),
        Ok(sale) => format!("NO MUTUAL EXCLUSION: sold {}, of which the stock misses {}", sale.sold, sale.oversold),
        Err(why) => format!("FAILED: {why}"),
    }
}

fn in_short(figures: &Result<Figures, String>) -> String {
    match figures {
        Ok(figures) => {
            let conflicts = figures.audit.map_or(0, |audit| audit.conflicts);
            let conflicts = if conflicts > 0 { format!("  {conflicts} CONFLICTS") } else { String::new() };
            format!("{:>10.0}/s  p99 {:>9} us{conflicts}", figures.per_s, figures.p99_us.unwrap_or(0))
        }
        Err(why) => format!("FAILED: {why}"),
    }
}

fn month() -> String {
    let output = Command::new("date").args(["-u", "+%B %Y"]).env("LC_ALL", "C").output();
    output.map_or_else(
        |_| "at an unknown date".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
