use super::above::held_above_but;
use super::socket::{ANSWER, Answer, Peer, address, silent, unreachable_keeper};
use super::watched::Watched;
use super::{Done, ROLE, Request, Wanted};
use crate::args::{Acquire, Release};
use crate::child_socket::{encode_command, send_descriptors};
use crate::commands::run::check_all;
use crate::context::{Context, LEAVING, write_delivered};
use crate::exit::{Exit, Failure};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::text::label_of;
use fencelock::Client;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// What `acquire` sends when the answer is delivered.
pub(super) const DELIVERED: &str = "delivered";
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
    let owner = acquire.owner.clone().unwrap_or_default();
    let label = label_of(&owner, (pid, &watched.command), acquire.label.as_deref());
    let plan = Plan::of_keeper(acquire, &label).map_err(usage)?;
    let client = context.connect_to_wait().await?;
    let backend = check_all(&plan, &client, context).await?;
    let draws = context.report.draws_progress();
    let (label, options) = (acquire.label.clone(), context.options()?);
    let wanted = Wanted { owner, options, plan, label, report: context.report, draws };
    let done = ask(&wanted, &watched, &backend, &client).await;
    let _ = client.close(LEAVING).await;
    done.map(|()| Exit::Success)
}

async fn ask(wanted: &Wanted, watched: &Watched, backend: &str, client: &Client) -> Result<(), Failure> {
    let (process, address) = (watched.as_ancestor()?, address(backend, &watched.fingerprint()?));
    let progress = Progress::of_keys(&wanted.plan.keys, wanted.report);
    for _ in 0..TRIES {
        let wait = wanted.plan.wait.map(|limit| limit.saturating_sub(progress.waited()));
        let plan = Plan { wait, ..wanted.plan.clone() };
        let request = Request::Acquire(Box::new(Wanted { plan, ..wanted.clone() }));
        let mut keeper = match Peer::connect(&address).await? {
            Some(keeper) => keeper,
            None => start(watched)?,
        };
        let own = Some((&process, keeper.pid));
        let asked = tokio::select! {
            biased;
            asked = answer(&mut keeper, &request, &progress) => asked,
            refused = held_above_but((&wanted.plan).into(), &wanted.owner, own, backend, client) => Err(refused),
        };
        progress.clear();
        match asked? {
            Some(text) => return deliver(keeper, &text).await,
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

/// `None` if the keeper has ended without an answer.
async fn answer(keeper: &mut Peer, request: &Request, progress: &Progress) -> Result<Option<String>, Failure> {
    if keeper.write(request).await.is_err() {
        return Ok(None);
    }
    loop {
        let answer = timeout(ANSWER, keeper.read()).await.map_err(|_| silent(keeper.pid))?;
        match answer {
            Ok(Some(Answer::Alive)) => {}
            Ok(Some(Answer::Shown(shown))) => progress.show(shown),
            Ok(Some(Answer::Done(text))) => return Ok(Some(text.as_str().unwrap_or_default().to_owned())),
            Ok(Some(Answer::Failed(code, message))) => return Err(Failure { exit: Exit::of_code(code), message }),
            _ => return Ok(None),
        }
    }
}

async fn deliver(mut keeper: Peer, text: &str) -> Result<(), Failure> {
    if let Err(failure) = write_delivered(text) {
        // Nobody could release the lock. The keeper closes its side when it has done it.
        keeper.finish().await;
        let released = timeout(ANSWER, keeper.read::<Answer>()).await.is_ok_and(|end| matches!(end, Ok(None)));
        let outcome = if released { "the lock was released" } else { "the lock ends with its lease" };
        return Err(Failure::new(failure.exit, format!("{}; {outcome}", failure.message)));
    }
    let told = keeper.write(&DELIVERED).await;
    told.map_err(|error| Failure::system("reach the process that keeps the lock", error))
}

/// Starts a keeper.
fn start(watched: &Watched) -> Result<Peer, Failure> {
    let started = || -> io::Result<Peer> {
        let (mut socket, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("fencelock").arg(ROLE).stdin(OwnedFd::from(theirs));
        // It writes no output; a reader of that of `acquire` must not wait for it. This is there also where /dev/null is not.
        command.stdout(Stdio::from(watched.descriptor()?));
        // It is not waited for: it outlives this process.
        let keeper = command.spawn()?.id();
        // The socket of the other side is closed here with the command.
        drop(command);
        let words = encode_command(&std::env::args_os().collect::<Vec<OsString>>());
        send_descriptors(&socket, words.len(), &[watched.descriptor()?])?;
        socket.write_all(&words)?;
        socket.set_nonblocking(true)?;
        let mut peer = Peer::of(tokio::net::UnixStream::from_std(socket)?);
        peer.pid = i32::try_from(keeper).ok();
        Ok(peer)
    };
    started()
        .map_err(|error| Failure::system("start the process that keeps the lock", Failure::why_not_started(&error)))
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
    let answer = keeper.release_all(release.owner.as_deref().unwrap_or_default()).await?;
    // It may have ended, and released all.
    let mut done: Vec<Done> = answer.and_then(|answer| serde_json::from_value(answer).ok()).unwrap_or_default();
    done.sort_by_key(|done| done.released != Some(true));
    Ok(done)
}
