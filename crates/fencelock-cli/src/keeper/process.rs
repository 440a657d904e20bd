use super::ROLE;
use super::owner::Process;
use super::socket::{FIRST, accept, address};
use super::system_log::warn;
use super::watched::Watched;
use crate::args::{Acquire, Command, Common};
use crate::context::{CLOSING, Context};
use crate::descendants::end_group_of;
use crate::exit::{Exit, Failure};
use crate::proc::leaves_children_that_ended;
use crate::serve::{Peer, Server, Session, Unread, Visible};
use crate::signals::Signals;
use crate::started::{Job, of_parent};
use crate::{block_on_main_thread, check_open_files, logging, parse, settings, stderr};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::read_dir;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

const NAME: &str = "fencelock";
/// How often a keeper that holds nothing looks whether its parent has waited for those before it.
const LOOK: Duration = Duration::from_secs(2);

/// Runs the keeper. It is started by `fencelock acquire`, and serves all requests of a session.
pub(crate) fn run() -> Exit {
    let Some(socket) = of_parent(ROLE, "acquire") else { return Exit::Usage };
    close_inherited();
    // Its program was named by a link.
    let _ = std::fs::write("/proc/self/comm", NAME);
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
    let Command::Acquire(Acquire { while_pid: Some(pid), .. }) = arguments.command else { return Exit::Usage };
    let watched = Watched::of_descriptor(pid, process);
    // The socket of the parent becomes the process, which shows whom this is a keeper of.
    let _ = rustix::stdio::dup2_stdin(&watched);
    let kept = block_on_main_thread(async {
        let front = std::os::unix::net::UnixStream::from(front);
        let front = front.set_nonblocking(true).and_then(|()| UnixStream::from_std(front));
        let front = front.map_err(|error| Failure::system("use the socket of its parent", error))?;
        let begun = begin(watched, &context).await;
        logging::start(&arguments);
        match begun {
            Ok(Some((visible, server, listener))) => serve(front, Arc::new(visible), server, listener).await,
            // Another keeper of this session is there. The parent finds it.
            Ok(None) => {}
            Err(failure) => {
                let mut answer = Unread::new(front);
                let _ = answer.answer(&FIRST.into(), &Err(failure.into()));
                // It may have ended.
                let _ = answer.flush().await;
            }
        }
        Ok(())
    });
    kept.and_then(|kept: Result<(), Failure>| kept).map_or_else(|failure| failure.exit, |()| Exit::Success)
}

/// `None` if the address of the session is in use.
async fn begin(watched: Watched, context: &Context) -> Result<Option<(Visible, Server, UnixListener)>, Failure> {
    check_open_files()?;
    let failed = |error| Failure::system("watch the process", error);
    let peer = watched.descriptor().and_then(|process| Peer::of_process(watched.pid, process)).map_err(failed)?;
    let client = context.connect_to_wait().await?;
    let server = Server::new(client, context, Duration::ZERO)?;
    let address = address(&server.identity, &watched.fingerprint()?);
    // It fails if somebody has the address.
    let listener = match UnixListener::bind(format!("\0{address}")) {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
        Err(error) => return Err(Failure::system("open a socket for the requests of this session", error)),
    };
    let process = Process { watched, options: context.options()?, changes: watch::Sender::new(()) };
    Ok(Some((Visible::new(peer, Some(process)), server, listener)))
}

/// Serves until the process ends, or until it holds nothing and nobody asks.
async fn serve(front: UnixStream, visible: Arc<Visible>, server: Server, listener: UnixListener) {
    // From now on they have no effect. A keeper dies with nobody but its process.
    let _signals = Signals::listen();
    // It must not keep a file system in use.
    let _ = std::env::set_current_dir("/");
    let Some(process) = &visible.process else { return };
    let server = Arc::new(server);
    let (mut sessions, mut count, mut changes) = (JoinSet::new(), 0, process.changes.subscribe());
    let (mut next, mut listener, end) = (Some(front), Some(listener), watch::Sender::new(None));
    loop {
        if let Some(stream) = next.take() {
            count += 1;
            let (reader, writer) = stream.into_split();
            let session = Session::new(Arc::clone(&server), count, Arc::clone(&visible), writer);
            sessions.spawn(session.run(reader, end.subscribe()));
        }
        let is_idle = sessions.is_empty() && visible.holds().is_empty();
        // A parent that waits for no keeper would have a zombie of each, so the next one stays.
        if sessions.is_empty() && listener.is_none() || is_idle && !leaves_children_that_ended(NAME) {
            let _ = server.client.clone().close(CLOSING).await;
            return;
        }
        tokio::select! {
            biased;
            () = visible.peer.ended(), if listener.is_some() => {
                listener = None;
                if let Some(grace) = visible.group_ends_within() {
                    let left = end_group_of(process.watched.in_proc, grace).await;
                    if left > 0 {
                        let Watched { pid, command, .. } = &process.watched;
                        warn(&format!("{left} processes that process {pid} ({command}) has left cannot be ended"));
                    }
                }
                drop(visible.take(|_| true));
            }
            Some(stream) = async { Some(accept(listener.as_ref()?).await) } => next = Some(stream),
            Some(ended) = sessions.join_next() => {
                // A reader of the standard error of the first request must not wait for the end of the process.
                let _ = rustix::stdio::dup2_stderr(&process.watched);
                stderr::leave();
                if let Err(bug) = ended {
                    warn(&format!("a bug, please report it: {bug}"));
                }
            }
            Ok(()) = changes.changed() => {}
            () = sleep(LOOK), if is_idle => {}
        }
    }
}
