//! fencelock and other lock libraries: the same workloads, in one run, on one Redis server.
//!
//! Each library is behind a small program, a *runner*, in `peers/`; `peers/README.md` says what it is told and what it tells.
//! `scripts/bench-peers` gets them and starts this. A run first lets every library sell a stock under its lock: what does not
//! exclude is measured, but told. Then all of them do one workload after the other, so that what is compared was measured close
//! together. The run is kept in `docs/en/benchmarks/peers.json`; page and charts are drawn from there alone.

mod chart;
mod figures;
mod known;
mod ours;
mod page;
mod plan;
mod run;
mod scene;
mod stage;

pub use figures::Figures;
pub use known::{KNOWN, Peer};
pub use plan::{Cell, Effort};
pub use run::{Run, Sale};
pub use stage::sell;

use fencelock_testkit::RedisServer;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What the command line asks for.
struct Options {
    effort: Effort,
    only: Vec<String>,
    render_only: bool,
}

/// Measures, keeps the run, and draws it. `--quick`, `--only NAME,NAME`, `--render`.
pub fn main() -> ExitCode {
    if let Some(code) = ours::run_if_asked() {
        return code;
    }
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}; there are --quick, --only NAME,NAME and --render");
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
            other => return Err(format!("{other} is not known")),
        }
    }
    match options.only.iter().find(|name| KNOWN.iter().all(|peer| peer.name != **name)) {
        Some(unknown) => Err(format!("there is no peer {unknown}")),
        None => Ok(options),
    }
}

fn measure(options: &Options) -> Result<(), crate::Failure> {
    let server = RedisServer::start()?;
    let is_wanted = |peer: &&Peer| options.only.is_empty() || options.only.iter().any(|name| name == peer.name);
    let peers: Vec<&Peer> = KNOWN.iter().filter(is_wanted).collect();
    let run = stage::measure(&server, &peers, options.effort);
    let file = docs().join("benchmarks/peers.json");
    std::fs::create_dir_all(docs().join("benchmarks"))?;
    std::fs::write(&file, serde_json::to_string_pretty(&run)? + "\n")?;
    Ok(())
}

/// The files that a run becomes: paths below `docs/en`, and what is in them.
///
/// # Errors
/// If a chart cannot be drawn, or the page has no place for the tables.
pub fn files(run: &Run, page: &str) -> Result<Vec<(&'static str, String)>, crate::Failure> {
    let mut files = vec![("performance.md", page::insert(page, &page::text(run))?)];
    for scene in scene::ALL {
        files.push((scene.file, chart::draw(&scene, run)?));
    }
    Ok(files)
}

fn render() -> Result<(), crate::Failure> {
    let run: Run = serde_json::from_str(&std::fs::read_to_string(docs().join("benchmarks/peers.json"))?)?;
    let page = std::fs::read_to_string(docs().join("performance.md"))?;
    for (name, text) in files(&run, &page)? {
        std::fs::write(docs().join(name), text)?;
        println!("docs/en/{name}");
    }
    Ok(())
}

/// The directory of the pages.
pub fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/en")
}
