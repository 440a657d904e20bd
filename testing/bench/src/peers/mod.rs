//! fencelock and other lock libraries: the same workloads, in one run, on one Redis server.
//!
//! Each library runs in a small program, a *runner*, in `peers/`; `peers/README.md` describes the protocol.
//! `scripts/bench-peers` installs them and starts this program. A run first lets every library sell a stock under its lock:
//! a library without mutual exclusion is measured, and reported. Then all libraries run one workload after the other, so
//! that compared values are measured close together. The run becomes the page `docs/en/benchmarks/peers.md`.

mod known;
mod measure;
mod page;
mod plan;
mod run;

pub use known::{KNOWN, Peer};
pub use measure::sell;

use fencelock_testkit::RedisServer;
use plan::Effort;
use std::process::ExitCode;

/// Measures, and writes the page. `--quick`, `--only NAME,NAME`.
pub fn main() -> ExitCode {
    if let Some(code) = crate::load::run_as_worker() {
        return code;
    }
    let (effort, peers) = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}; the options are --quick and --only NAME,NAME");
            return ExitCode::from(64);
        }
    };
    match measure(effort, &peers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<(Effort, Vec<&'static Peer>), String> {
    let (mut effort, mut peers) = (Effort::FULL, KNOWN.iter().collect());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {}
            "--quick" => effort = Effort::QUICK,
            "--only" => {
                let names = arguments.next().ok_or("--only needs names")?;
                let known = |name: &str| KNOWN.iter().find(|peer| peer.name == name);
                let found = names.split(',').map(|name| known(name).ok_or_else(|| format!("unknown peer {name}")));
                peers = found.collect::<Result<_, _>>()?;
            }
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok((effort, peers))
}

fn measure(effort: Effort, peers: &[&'static Peer]) -> Result<(), crate::Failure> {
    let server = RedisServer::start()?;
    let run = measure::measure(&server, peers, effort)?;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/en/benchmarks/peers.md");
    Ok(std::fs::write(file, page::text(&run))?)
}
