//! A flash sale and a bank on a real server.

use super::args::{ALL, Tale, Telling};
use super::pauses::Pauses;
use super::progress::{Counter, Progress};
use super::protocol::Parent;
use super::round::run;
use super::url::url_of_command_line;
use super::write;
use crate::context::{Context, may_colour, print};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::Signals;
use fencelock_lab::workers::WorkerPool;
use fencelock_lab::{
    Job, Lang, Load, NotRun, Round, Score, Story, Tally, chart, json_scores, schemes_of_stories, scores, work,
};
use std::sync::Arc;
use std::time::Duration;

/// How long a lock lasts: as in the articles, and longer than any request should take.
const TTL: Duration = Duration::from_secs(5);
/// The same where somebody has to wait for its end.
const SHORT_TTL: Duration = Duration::from_millis(300);
/// How long a sleeper sleeps: past the end of its lock, and of the one after.
const SLEEP: Duration = Duration::from_millis(700);

/// Gives every scheme the same load, and shows what came of it.
pub(super) async fn tell(tale: &Tale, context: &Context) -> Result<Exit, Failure> {
    let Some((telling, load)) = load(tale) else { return hand() };
    let lang = telling.lang.into();
    // The environment says where locks are kept, and not that anybody wants a load there.
    let url = url_of_command_line()?.ok_or_else(|| Failure::new(Exit::Usage, needs_url(lang)))?;
    let mut signals = Signals::listen().map_err(|error| Failure::system("take signals", error))?;
    let pool = Arc::new(WorkerPool::default());
    let schemes = chosen(&telling.scheme);
    let progress = Progress::of(schemes.len(), context.report);
    let mut told = {
        let (pool, counter) = (Arc::clone(&pool), progress.counter());
        tokio::task::spawn_blocking(move || each(&url, &schemes, load, &pool, &counter))
    };
    let mut ended = None;
    let told = tokio::select! {
        biased;
        signal = signals.ending() => {
            pool.stop();
            ended = Some(signal);
            // It removes its keys first.
            (&mut told).await
        }
        told = &mut told => told,
    };
    drop(progress);
    if let Some(signal) = ended {
        return Ok(signal.into());
    }
    let told = told.map_err(|error| Failure::system("tell a story", error))?.map_err(|reason| refusal(&reason))?;
    if let Some(file) = &telling.svg {
        write(file, &chart(&told, lang))?;
    }
    if context.report.json {
        print(&format!("{:#}\n", json_scores(&told)))?;
    } else {
        print(&scores(&told, lang, may_colour()))?;
    }
    Ok(Exit::Success)
}

fn load(tale: &Tale) -> Option<(&Telling, Load)> {
    let (story, requests, stock, telling) = match tale {
        Tale::Stock { stock, requests, telling } => (Story::Stock, *requests, *stock, telling),
        Tale::Bank { requests, telling } => (Story::Bank, *requests, 0, telling),
        Tale::Hand => return None,
    };
    let ttl = if telling.overrun || telling.crash || telling.pause { SHORT_TTL } else { TTL };
    let load = Load {
        story,
        processes: telling.processes,
        requests,
        stock,
        work: telling.work,
        ttl,
        sleep: telling.overrun.then_some(SLEEP),
        crash: telling.crash,
        pause: telling.pause,
    };
    Some((telling, load))
}

fn chosen(scheme: &str) -> Vec<String> {
    if scheme == ALL {
        return schemes_of_stories().into_iter().map(str::to_owned).collect();
    }
    vec![scheme.to_owned()]
}

fn each(url: &str, schemes: &[String], load: Load, pool: &WorkerPool, counter: &Counter) -> Result<Vec<Score>, NotRun> {
    let turn = |scheme: &String| {
        counter.begins(scheme);
        let mut round = Round::open(url, scheme, load)?;
        let pauses = load.pause.then(|| Pauses::of(&round)).transpose()?;
        let (tallies, took) = run(pool, &round.jobs(), load.crash, pauses.as_ref())?;
        counter.is_done();
        round.score(&tallies, took)
    };
    schemes.iter().map(turn).collect()
}

fn refusal(reason: &NotRun) -> Failure {
    let exit = match reason {
        NotRun::Server(_) | NotRun::Client(_) | NotRun::Job(_) => Exit::Unreachable,
        NotRun::Scheme(_) => Exit::Usage,
        NotRun::Start(_) => Exit::System,
    };
    Failure::new(exit, reason)
}

fn needs_url(lang: Lang) -> &'static str {
    lang.pick(
        "a story puts a real Redis under load: start one for it with `redis-server --port 6390 --save ''`, and say --url \
         redis://127.0.0.1:6390 (FENCELOCK_URL does not count here)",
        "故事要在真实的 Redis 上运行：先用 `redis-server --port 6390 --save ''` 启动一个，再加上 --url redis://127.0.0.1:6390（FENCELOCK_URL 在这里不算数）",
    )
}

/// One of the processes of a story.
pub(super) fn hand() -> Result<Exit, Failure> {
    // Not on this thread, for the client brings a runtime of its own.
    let done = std::thread::spawn(part).join();
    let tally = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(|reason| refusal(&reason))?;
    print(&format!("{}\n", tally.line()))?;
    Ok(Exit::Success)
}

fn part() -> Result<Tally, NotRun> {
    let (parent, line) = Parent::attach().map_err(NotRun::Start)?;
    work(&Job::parse(&line)?, &parent)
}
