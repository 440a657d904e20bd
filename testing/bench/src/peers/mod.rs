//! fencelock and other lock libraries: the same workloads, in one run, on one Redis server.
//!
//! Each library runs in a small program, a *runner*, in `peers/`; `peers/README.md` describes the protocol.
//! `scripts/bench-peers` installs them and starts this program. A run first lets every library sell a stock under its lock:
//! a library without mutual exclusion is measured, and reported. Then all libraries run one workload after the other, so
//! that compared values are measured close together. Locks of other modes have cells of their own, and are checked during
//! the measurement. The run is stored in `docs/en/benchmarks/peers.json`; the page and its charts are generated from it.

mod chart;
mod chart_spec;
mod figures;
mod goals;
mod known;
mod measure;
mod page;
mod page_table;
mod plan;
mod run;

pub use figures::Figures;
pub use known::{KNOWN, Peer};
pub use measure::sell;
pub use plan::{Cell, Effort};
pub use run::{Measured, Run, Sale};

use fencelock_testkit::RedisServer;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The command line.
struct Options {
    effort: Effort,
    only: Vec<String>,
    render_only: bool,
}

/// Measures, stores the run, and draws it. `--quick`, `--only NAME,NAME`, `--render`.
pub fn main() -> ExitCode {
    if let Some(code) = crate::load::run_as_worker() {
        return code;
    }
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}; the options are --quick, --only NAME,NAME and --render");
            return ExitCode::from(64);
        }
    };
    let done = if options.render_only { Ok(()) } else { measure(&options) };
    match done.and_then(|()| render()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { effort: Effort::FULL, only: Vec::new(), render_only: false };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => {}
            "--quick" => options.effort = Effort::QUICK,
            "--render" => options.render_only = true,
            "--only" => {
                let names = arguments.next().ok_or("--only needs names")?;
                options.only = names.split(',').map(str::to_owned).collect();
            }
            other => return Err(format!("unknown argument {other}")),
        }
    }
    match options.only.iter().find(|name| KNOWN.iter().all(|peer| peer.name != **name)) {
        Some(unknown) => Err(format!("unknown peer {unknown}")),
        None => Ok(options),
    }
}

fn measure(options: &Options) -> Result<(), crate::Failure> {
    let server = RedisServer::start()?;
    let is_wanted = |peer: &&Peer| options.only.is_empty() || options.only.iter().any(|name| name == peer.name);
    let peers: Vec<&Peer> = KNOWN.iter().filter(is_wanted).collect();
    let mut run = measure::measure(&server, &peers, options.effort);
    if options.only.is_empty() || options.only.iter().any(|name| name == goals::OURS) {
        run.local_shared_per_s = Some(measure::local_shared(&server, options.effort)?);
    }
    std::fs::write(stored(), serde_json::to_string_pretty(&run)? + "\n")?;
    Ok(())
}

/// The files that are generated from a run: paths below [`docs`], and their contents. A chart without data is left out.
///
/// # Errors
/// If a chart cannot be drawn, or the page has no marks for the tables.
pub fn files(run: &Run, page: &str) -> Result<Vec<(&'static str, String)>, crate::Failure> {
    let mut files = vec![(PAGE, page::insert(page, &page::text(run))?)];
    for chart_spec in chart_spec::ALL.into_iter().filter(|chart_spec| !chart_spec.lines(run).is_empty()) {
        files.push((chart_spec.file, chart::draw(&chart_spec, run)?));
    }
    Ok(files)
}

fn render() -> Result<(), crate::Failure> {
    let run: Run = serde_json::from_str(&std::fs::read_to_string(stored())?)?;
    let page = std::fs::read_to_string(docs().join(PAGE))?;
    for (name, text) in files(&run, &page)? {
        let file = docs().join(name);
        std::fs::write(&file, text)?;
        println!("{}", file.display());
    }
    Ok(())
}

/// The directory of the page, its charts and the last run.
pub fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/en/benchmarks")
}

/// The file of the last run.
pub fn stored() -> PathBuf {
    docs().join("peers.json")
}

/// The page with the tables.
pub const PAGE: &str = "peers.md";
