use super::front::DELIVERED;
use super::session::{Grant, Hold, Session};
use super::socket::{Answer, BEAT, LINE, Peer, address, listen};
use super::watched::{End, Watched};
use super::{ROLE, Request, Wanted, session};
use crate::args::{Command, Common};
use crate::child_socket::{Job, of_parent};
use crate::context::{CLOSING, Context};
use crate::exit::{Exit, Failure};
use crate::progress::Progress;
use crate::signals::Signals;
use crate::{block_on_main_thread, check_open_files, logging, parse, settings, stderr};
use fencelock::Client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::fs::read_dir;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{interval, timeout};

/// Runs the keeper. It is started by `fencelock acquire`, and serves all requests of a session.
pub(crate) fn run() -> Exit {
    let Some(socket) = of_parent(ROLE, "acquire") else { return Exit::Usage };
    close_inherited();
    // Its program was named by a link.
    let _ = std::fs::write("/proc/self/comm", "fencelock");
    // It cannot fail: this process leads no group.
    let _ = rustix::process::setsid();
    // A lock may have files of its own. Too few are named by the request that needs more.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    // A dead parent needs no report.
    let Ok(job) = Job::receive(socket) else { return Exit::System };
    let Ok(front) = socket.try_clone_to_owned() else { return Exit::System };
    execute(job, front)
}

/// Closes what this process has inherited beside the standard streams: another lock, for example, that a shell holds with a descriptor.
fn close_inherited() {
    let listed = read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // One of them was that of the list.
        let _ = nix::unistd::close(number);
    }
}

fn execute(job: Job, front: OwnedFd) -> Exit {
    let Job { command: words, locks, stdin } = job;
    drop(stdin);
    // The parent has parsed them before.
    let settings = settings::load();
    let arguments = parse::parse_from(&words, settings.as_ref().ok());
    let (Ok(arguments), Some(process)) = (arguments, locks.into_iter().next()) else {
        return Exit::Usage;
    };
    // What concerns the connection, the parent says too.
    let context = Context::new(&Common { quiet: true, ..arguments.common.clone() }, settings, false);
    let Command::Acquire(acquire) = &arguments.command else { return Exit::Usage };
    let Some(pid) = acquire.while_pid else { return Exit::Usage };
    let watched = Watched::of_descriptor(pid, process);
    // The socket of the parent becomes the process, which shows whom this is a keeper of.
    let _ = rustix::stdio::dup2_stdin(&watched);
    let few = check_open_files();
    let kept = block_on_main_thread(async {
        let front = std::os::unix::net::UnixStream::from(front);
        let front = front.set_nonblocking(true).and_then(|()| UnixStream::from_std(front));
        let mut front = Peer::of(front.map_err(|error| Failure::system("use the socket of its parent", error))?);
        let begun = match few {
            Ok(()) => begin(watched, &context).await,
            Err(few) => Err(few),
        };
        logging::start(&arguments);
        match begun {
            Ok(Some(keeper)) => LocalSet::new().run_until(keeper.serve(front)).await,
            // Another keeper of this session is there. The parent finds it.
            Ok(None) => {}
            Err(failure) => fail(&mut front, failure).await,
        }
        Ok(())
    });
    kept.and_then(|kept: Result<(), Failure>| kept).map_or_else(|failure| failure.exit, |()| Exit::Success)
}

struct Keeper {
    session: Rc<Session>,
    client: Client,
    listener: UnixListener,
    end: End,
}

/// `None` if the address of the session is in use.
async fn begin(watched: Watched, context: &Context) -> Result<Option<Keeper>, Failure> {
    let end = watched.end().map_err(|error| Failure::system("watch the process", error))?;
    let client = context.connect_to_wait().await?;
    let address = address(&context.identity(&client)?, &watched.fingerprint()?);
    let listener = match listen(&address) {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
        Err(error) => return Err(Failure::system("open a socket for the requests of this session", error)),
    };
    let session = Rc::new(Session::new(watched, client.clone(), context.options()?));
    Ok(Some(Keeper { session, client, listener, end }))
}

impl Keeper {
    async fn serve(self, front: Peer) {
        // From now on they have no effect. A keeper dies with nobody but its process.
        let _signals = Signals::listen();
        // It must not keep a file system in use.
        let _ = std::env::set_current_dir("/");
        let Self { session, client, listener, end } = self;
        let mut tasks = JoinSet::new();
        tasks.spawn_local(answer(Rc::clone(&session), front));
        let mut listener = Some(listener);
        while !tasks.is_empty() {
            tokio::select! {
                biased;
                () = end.wait(), if listener.is_some() => {
                    listener = None;
                    session.end();
                }
                peer = accept(listener.as_ref()) => drop(tasks.spawn_local(answer(Rc::clone(&session), peer))),
                Some(ended) = tasks.join_next() => {
                    if let Err(bug) = ended {
                        session::warn(&format!("a bug, please report it: {bug}"));
                    }
                }
            }
        }
        drop(listener);
        let _ = client.close(CLOSING).await;
    }
}

async fn accept(listener: Option<&UnixListener>) -> Peer {
    match listener {
        Some(listener) => Peer::accept(listener).await,
        None => pending().await,
    }
}

/// Answers one request, and keeps what it gets.
async fn answer(session: Rc<Session>, mut peer: Peer) {
    let request = match timeout(LINE, peer.read()).await {
        Ok(Ok(Some(request))) => request,
        Ok(Err(error)) => {
            let why = format!(
                "the keeper of this session does not understand the request, it may be of another version: {error}"
            );
            return fail(&mut peer, Failure::new(Exit::System, why)).await;
        }
        _ => return,
    };
    let done = match request {
        Request::Acquire(wanted) => return acquire(&session, *wanted, peer).await,
        Request::Holds => json!(session.kept()),
        Request::Release { key, holder } => json!(session.release(&key, holder, None).await),
        Request::Break { key, holder } => {
            let who = peer.pid.map_or_else(|| "an unknown process".to_owned(), |pid| format!("process {pid}"));
            let user = rustix::process::geteuid().as_raw();
            json!(session.release(&key, holder, Some(format!("{who} of user {user}"))).await)
        }
        Request::ReleaseAll { owner } => json!(session.release_all(&owner).await),
    };
    let _ = peer.write(&Answer::Done(done)).await;
}

/// The other side may have ended.
async fn fail(peer: &mut Peer, Failure { exit, message }: Failure) {
    let _ = peer.write(&Answer::Failed(exit.code(), message)).await;
}

async fn acquire(session: &Rc<Session>, wanted: Wanted, mut peer: Peer) {
    let (said, mut heard) = unbounded_channel();
    let progress = Arc::new(Progress::of_request(&wanted.plan.keys, wanted.report, wanted.draws, said));
    let asked = {
        let mut acquiring = std::pin::pin!(session.acquire(&wanted, &progress));
        let mut beat = interval(BEAT);
        loop {
            let answer = tokio::select! {
                biased;
                Some(shown) = heard.recv() => Answer::Shown(shown),
                asked = &mut acquiring => break Some(asked),
                _ = beat.tick() => Answer::Alive,
                // It says nothing before it has the answer.
                _ = peer.read::<Value>() => break None,
            };
            if peer.write(&answer).await.is_err() {
                break None;
            }
        }
    };
    // A reader of the standard error of the first request must not wait for the end of the process.
    let _ = rustix::stdio::dup2_stderr(&session.watched);
    stderr::leave();
    drop(progress);
    let Some(asked) = asked else { return };
    while let Ok(shown) = heard.try_recv() {
        let _ = peer.write(&Answer::Shown(shown)).await;
    }
    let text = |hold: &Hold| Answer::Done(hold.answer(&session.watched, wanted.report.json).into());
    match asked {
        Err(failure) => fail(&mut peer, failure).await,
        Ok(Grant::Already(hold)) => {
            let _ = peer.write(&text(&hold)).await;
            let _ = peer.read::<String>().await;
        }
        Ok(Grant::New(new)) => {
            let written = peer.write(&text(&new.hold)).await.is_ok();
            let delivered =
                async { written && matches!(peer.read::<String>().await, Ok(Some(word)) if word == DELIVERED) };
            let delivered = tokio::select! {
                biased;
                () = session.ended() => false,
                delivered = delivered => delivered,
            };
            if delivered {
                drop(peer);
                session.keep(new).await;
            } else {
                // The other side waits for the end of the connection.
                new.give_back().await;
            }
        }
    }
}
