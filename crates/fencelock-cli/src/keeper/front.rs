use super::above::held_above;
use super::asked::Asked;
use super::socket::{Peer, address, unreachable_keeper};
use super::watched::Watched;
use super::{Done, ROLE, Request};
use crate::args::{Acquire, Release};
use crate::child_socket::{self, send_job};
use crate::commands::run::check_all;
use crate::context::{Context, LEAVING, write_delivered};
use crate::exit::{Exit, Failure};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::serve::Wanted;
use crate::text::label_of;
use fencelock::Client;
use serde_json::Value;
use std::ffi::OsString;
use std::io;
use std::time::Duration;
use tokio::time::sleep;

/// How often a keeper is looked for, or started: it may end, or be killed, while a request is on its way to it or waits.
const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(25);

/// Has the keeper of the process `pid` acquire the locks, and starts it if there is none. Signals have their default action: if this
/// process ends, the keeper gives up.
pub(crate) async fn acquire(acquire: &Acquire, pid: u32, context: &Context) -> Result<Exit, Failure> {
    let usage = |why| Failure::new(Exit::Usage, why);
    // That of `release` may be one: a shell runs its last command as itself.
    if pid == std::process::id() {
        let why = "this is fencelock itself; name the process that needs the lock: in a shell it is $$";
        return Err(usage(format!("--while-pid {pid}: {why}")));
    }
    let watched = Watched::open(pid)?;
    if acquire.end_group && !watched.is_leader() {
        let why =
            "leads no process group and no session, so its end tells nobody what it has left; start it with setsid";
        return Err(usage(format!("--end-group: process {pid} ({}) {why}", watched.command)));
    }
    let owner = acquire.owner.clone().unwrap_or_default();
    let label = label_of(&owner, (pid, &watched.command), acquire.label.as_deref());
    let mut plan = Plan { label: Some(label), ..Plan::of_acquire(acquire).map_err(usage)? };
    let client = context.connect_to_wait().await?;
    let backend = check_all(&mut plan, &client, context).await?;
    let draws = context.report.draws_progress();
    let (label, options) = (acquire.label.clone(), context.options()?);
    let asked = Asked { pid, options, label, report: context.report, draws };
    let wanted = Wanted { plan, is_list: false, owner: Some(owner), asked: Some(Box::new(asked)), has: Vec::new() };
    let done = ask(&wanted, &watched, &backend, &client).await;
    let _ = client.close(LEAVING).await;
    done.map(|()| Exit::Success)
}

async fn ask(wanted: &Wanted, watched: &Watched, backend: &str, client: &Client) -> Result<(), Failure> {
    let (process, address) = (watched.as_ancestor()?, address(backend, &watched.fingerprint()?));
    let report = wanted.asked.as_ref().map(|asked| asked.report).unwrap_or_default();
    let (progress, owner) = (Progress::of_keys(&wanted.plan.keys, report), wanted.owner.as_deref().unwrap_or_default());
    for _ in 0..TRIES {
        let wait = wanted.plan.wait.map(|limit| limit.saturating_sub(progress.waited()));
        let plan = Plan { wait, ..wanted.plan.clone() };
        let request = Request::Acquire(Box::new(Wanted { plan, ..wanted.clone() }));
        let mut keeper = match Peer::connect(&address).await? {
            Some(keeper) => keeper,
            None => start(watched).await?,
        };
        let own = Some((owner, &process, keeper.pid));
        let asked = tokio::select! {
            biased;
            asked = keeper.ask(&request, |shown| progress.show(shown)) => asked,
            refused = held_above(&wanted.plan, own, backend, client) => Err(refused),
        };
        progress.clear();
        match asked? {
            Some(text) => return deliver(keeper, text).await,
            None if watched.has_ended() => {
                let Watched { pid, command, .. } = watched;
                let why = format!("process {pid} ({command}) has ended, so the lock was not acquired for it");
                return Err(Failure::new(Exit::Usage, why));
            }
            // It ends, or was killed, or another one was quicker.
            None => sleep(BETWEEN_TRIES).await,
        }
    }
    let why = format!(
        "the process that keeps the locks of this session has ended each time before it answered: it was killed, or another \
         process has taken its address (@{address})"
    );
    Err(Failure::new(Exit::System, why))
}

async fn deliver(mut keeper: Peer, text: String) -> Result<(), Failure> {
    if let Err(failure) = write_delivered(&text) {
        // Nobody could release the lock.
        let done: Option<Vec<Done>> = keeper.ask(&Request::GiveBack, drop).await.ok().flatten();
        let released = done.is_some_and(|done| done.iter().all(|done| done.released == Some(true)));
        let outcome = if released { "the lock was released" } else { "the lock ends with its lease" };
        return Err(Failure::new(failure.exit, format!("{}; {outcome}", failure.message)));
    }
    let ended = || Failure::system("reach the process that keeps the lock", "it has ended");
    keeper.ask::<Value>(&Request::Keep, drop).await?.map(drop).ok_or_else(ended)
}

/// Starts a keeper, which is not waited for: it outlives this process.
async fn start(watched: &Watched) -> Result<Peer, Failure> {
    let started = async || -> io::Result<Peer> {
        // It writes no output; a reader of that of `acquire` must not wait for it. This is there also where /dev/null is not.
        let output = watched.descriptor()?;
        let (keeper, socket) = child_socket::start(|keeper| _ = keeper.arg(ROLE).stdout(output))?;
        send_job(&socket, &std::env::args_os().collect::<Vec<OsString>>(), &[watched.descriptor()?]).await?;
        Ok(Peer { pid: i32::try_from(keeper.id()).ok(), ..Peer::of(socket) })
    };
    let failed = |error| Failure::system("start the process that keeps the lock", Failure::why_not_started(&error));
    started().await.map_err(failed)
}

/// Releases all locks of an owner.
pub(crate) async fn release_all(release: &Release, pid: u32, context: &Context) -> Result<Vec<Done>, Failure> {
    let watched = Watched::open(pid)?;
    let client = context.connect_to_wait().await?;
    let (backend, process) = (context.identity(&client)?, watched.as_ancestor()?);
    let Some(mut keeper) = Peer::connect(&address(&backend, &process.fingerprint)).await? else {
        let Some(keeper) = unreachable_keeper(&process) else { return Ok(Vec::new()) };
        let why = format!(
            "the process that keeps locks for process {pid} ({keeper}) cannot be asked from here, it is in another network \
             namespace: nothing was released"
        );
        return Err(Failure::new(Exit::Unreachable, why));
    };
    let (owner, tree) = (release.owner.clone().unwrap_or_default(), release.tree.tree()?);
    // It may have ended, and released all.
    let mut done: Vec<Done> = keeper.ask(&Request::ReleaseAll { owner, tree }, drop).await?.unwrap_or_default();
    done.sort_by_key(|done| done.released != Some(true));
    Ok(done)
}
