use super::control::{Control, Reply};
use super::front::{ANSWER, DELIVERED, EXIT, message};
use super::session::{kept_already, kept_meanwhile, request};
use super::watched::{End, Watched};
use super::{ROLE, Request, system_log};
use crate::args::{Acquire, Command, OnLost};
use crate::child_socket::{Job, of_parent};
use crate::commands::run::{Acquired, check_all, claim_locks, wait_for_full_lease};
use crate::context::{CLOSING, Context, LEAVING};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json::acquired;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::{block_on_main_thread, check_open_files, logging, parse, settings, stderr};
use fencelock::{Client, Guards, HolderId, Key, ReleasedAll, Span};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::read_dir;
use std::future::pending;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

/// Runs the keeper. It serves only the `fencelock acquire` that is its parent process.
pub(crate) fn run() -> Exit {
    let Some(socket) = of_parent(ROLE, "acquire") else { return Exit::Usage };
    close_inherited();
    // Its program was named by a link.
    let _ = std::fs::write("/proc/self/comm", "fencelock");
    // It cannot fail: this process leads no group.
    let _ = rustix::process::setsid();
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
    logging::start(&arguments);
    let context = Context::new(&arguments.common, settings, false);
    let Command::Acquire(acquire) = arguments.command else { return Exit::Usage };
    let Some(pid) = acquire.while_pid else { return Exit::Usage };
    let watched = Watched::of_descriptor(pid, process);
    if let Err(failure) = check_open_files() {
        context.report.fail(&failure);
        let _ = rustix::io::write(&front, &message(EXIT, &[failure.exit.code()]));
        return failure.exit;
    }
    let kept = block_on_main_thread(async {
        let front = Front::new(front)?;
        let kept = keep(&acquire, &watched, &front, &context).await;
        if let Err(failure) = &kept {
            context.report.fail(failure);
            front.send(EXIT, &[failure.exit.code()]).await;
        }
        kept
    });
    kept.and_then(|kept| kept).map_or_else(|failure| failure.exit, |()| Exit::Success)
}

/// The `acquire` that has started this keeper.
struct Front(UnixStream);

impl Front {
    fn new(socket: OwnedFd) -> Result<Self, Failure> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        let socket = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
        socket.map(Self).map_err(|error| Failure::system("use the socket of its parent", error))
    }

    async fn send(&self, kind: u8, text: &[u8]) {
        let message = message(kind, text);
        let mut rest = &message[..];
        while !rest.is_empty() && self.0.writable().await.is_ok() {
            match self.0.try_write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // It has ended.
                Err(_) => return,
            }
        }
    }

    /// Whether it has delivered the answer; `false` if it has ended. Cancel safe.
    async fn delivers(&self) -> bool {
        loop {
            if self.0.readable().await.is_err() {
                return false;
            }
            let mut word = [0];
            match self.0.try_read(&mut word) {
                Ok(bytes) => return bytes == 1 && word == [DELIVERED],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
    }
}

/// Acquires the locks, answers, and keeps them.
async fn keep(acquire: &Acquire, watched: &Watched, front: &Front, context: &Context) -> Result<(), Failure> {
    let plan = Plan::of_keeper(acquire, &label(acquire, watched)?).map_err(|why| Failure::new(Exit::Usage, why))?;
    // From now on they have no effect. A keeper dies with nobody but its process.
    let _signals = Signals::listen().map_err(|error| Failure::system("handle signals", error))?;
    let end = watched.end().map_err(|error| Failure::system("watch the process", error))?;
    let progress = Arc::new(Progress::of_keys(&plan.keys, context.report));
    let client = tokio::select! {
        biased;
        why = given_up(&end, watched, front) => return why,
        client = context.connect_to_wait() => client?,
    };
    let acquired = tokio::select! {
        biased;
        why = given_up(&end, watched, front) => why.map(|()| None),
        acquired = acquire_all(&plan, watched, &client, &progress, context) => acquired.map(Some),
    };
    progress.clear();
    let done = match acquired {
        Ok(Some(Acquisition::Already(answer))) => {
            front.send(ANSWER, answer.as_bytes()).await;
            front.delivers().await;
            Ok(())
        }
        Ok(Some(Acquisition::New { backend, guards, slot })) => {
            let kept = Kept { acquire, plan: &plan, watched, end: &end, backend, slot, since: Instant::now() };
            kept.keep(guards, front, &client, context).await
        }
        Ok(None) => Ok(()),
        Err(failure) => Err(failure),
    };
    let _ = client.close(if done.is_ok() { CLOSING } else { LEAVING }).await;
    done
}

/// Who has the lock and why, for everybody who waits for it.
fn label(acquire: &Acquire, watched: &Watched) -> Result<String, Failure> {
    let of_process = format!("while {} {}", watched.pid, watched.command);
    let Some(label) = acquire.label.as_deref().filter(|label| !label.is_empty()) else { return Ok(of_process) };
    let longest = fencelock::contract::Owner::LABEL_MAX_BYTES.saturating_sub(of_process.len() + 2);
    if label.len() > longest {
        let why = format!(
            "--label has at most {longest} bytes here, because `{of_process}` precedes it; this one has {}",
            label.len()
        );
        return Err(Failure::new(Exit::Usage, why));
    }
    Ok(format!("{of_process}: {label}"))
}

/// Waits until nobody needs the lock any more.
async fn given_up(end: &End, watched: &Watched, front: &Front) -> Result<(), Failure> {
    tokio::select! {
        () = end.wait() => {
            let why = format!("process {} ({}) has ended, so the lock was not acquired for it", watched.pid, watched.command);
            Err(Failure::new(Exit::Usage, why))
        }
        _ = front.delivers() => Ok(()),
    }
}

/// The locks of a keeper.
#[allow(clippy::large_enum_variant, reason = "there is one, and it is matched right away")]
enum Acquisition {
    New {
        backend: String,
        guards: Guards,
        slot: Option<u32>,
    },
    /// Another keeper has them for the same process. This is its answer.
    Already(String),
}

async fn acquire_all(
    plan: &Plan,
    watched: &Watched,
    client: &Client,
    progress: &Arc<Progress>,
    context: &Context,
) -> Result<Acquisition, Failure> {
    let backend = check_all(plan, client, context).await?;
    if let Some(answer) = kept_already(plan, watched, &backend, client, context.report.json).await? {
        return Ok(Acquisition::Already(answer));
    }
    let claimed = tokio::select! {
        biased;
        claimed = claim_locks(plan, client, progress) => claimed?,
        already = kept_meanwhile(plan, watched, &backend, client, context.report.json) => {
            return already.map(Acquisition::Already);
        }
    };
    let (guards, slot) = match claimed {
        Acquired::Guards(guards) => (guards, None),
        Acquired::Slot(guards, slot) => (guards, Some(slot)),
        Acquired::Begun(_) => return Err(Failure::new(Exit::Usage, "a window is for `run`")),
    };
    wait_for_full_lease(&guards, plan.rules.grace).await?;
    Ok(Acquisition::New { backend, guards, slot })
}

/// Locks that are kept for a process.
struct Kept<'a> {
    acquire: &'a Acquire,
    plan: &'a Plan,
    watched: &'a Watched,
    end: &'a End,
    backend: String,
    slot: Option<u32>,
    since: Instant,
}

/// What ends the hold, or announces its end.
enum Due {
    /// The lease is about to end.
    Ending,
    Lost(String),
    MaxHold,
}

impl Kept<'_> {
    async fn keep(&self, guards: Guards, front: &Front, client: &Client, context: &Context) -> Result<(), Failure> {
        let control = match Control::bind(client, &guards.holders()).await {
            Ok(control) => Some(control),
            Err(error) => {
                tracing::warn!(%error, "`release` and `break` cannot reach the process that keeps this lock");
                None
            }
        };
        let answer = self.answer(&guards, context.report.json);
        // A reader of stderr must not wait for the end of the process either.
        self.leave_streams();
        front.send(ANSWER, answer.as_bytes()).await;
        let delivered = tokio::select! {
            biased;
            () = self.end.wait() => false,
            delivered = front.delivers() => delivered,
        };
        if !delivered {
            self.release_quietly(Some(guards)).await;
            return Ok(());
        }
        // The socket of the parent.
        let _ = rustix::stdio::dup2_stdin(self.watched);
        self.run(guards, control).await;
        Ok(())
    }

    fn leave_streams(&self) {
        let _ = rustix::stdio::dup2_stderr(self.watched);
        stderr::leave();
        // It must not keep a file system in use.
        let _ = std::env::set_current_dir("/");
    }

    /// One line for each lock, as without `--while-pid`.
    fn answer(&self, guards: &Guards, as_json: bool) -> String {
        let locks = guards.keys().into_iter().zip(guards.holders()).zip(guards.fencing_tokens());
        let left = guards.remaining();
        let mut lines = String::new();
        for ((key, holder), fence) in locks {
            let line = if as_json {
                let mut answer = acquired(key, (holder, fence, self.plan.mode), self.plan.ttl, left);
                (answer["while_pid"], answer["slot"]) = (self.watched.pid.into(), self.slot.into());
                answer.to_string()
            } else {
                self.slot.map_or_else(|| holder.to_string(), |slot| format!("{holder} {slot}"))
            };
            lines.push_str(&line);
            lines.push('\n');
        }
        lines
    }

    /// Until the process ends, or somebody releases the locks. A lost lock is shown until then.
    async fn run(&self, guards: Guards, control: Option<Control>) {
        let mut hold = Some(guards);
        let (mut lost, mut signalled) = (None, false);
        loop {
            tokio::select! {
                biased;
                () = self.end.wait() => break,
                due = self.due(hold.as_ref(), signalled) => match due {
                    Due::Ending => {
                        self.signal(&mut signalled);
                        system_log::warn(&self.sentence("its lease is about to end and could not be renewed"));
                    }
                    Due::Lost(why) => {
                        hold = None;
                        lost = Some(self.report_loss(&why, &mut signalled));
                    }
                    Due::MaxHold => {
                        let why = format!("--max-hold {} is reached", Span(self.plan.rules.max_hold.unwrap_or_default()));
                        lost = Some(self.report_loss(&why, &mut signalled));
                        if signalled {
                            // It may clean up before others get the lock.
                            let _ = timeout(self.plan.rules.grace, self.end.wait()).await;
                        }
                        self.release_quietly(hold.take()).await;
                    }
                },
                (request, reply) = next(control.as_ref()) => match request {
                    Request::State => reply.send(&self.state(hold.as_ref(), lost.as_deref())).await,
                    Request::Release { key, holder } | Request::Break { key, holder } if !has(hold.as_ref(), &key, holder) => {
                        reply.refuse(lost.as_deref().unwrap_or("it is held by another holder")).await;
                    }
                    Request::Release { .. } => {
                        return self.release(hold.take(), reply).await;
                    }
                    Request::Break { .. } => {
                        // The process learns of it before others get the lock.
                        let why = format!("it was broken by {}", reply.from());
                        lost = Some(self.report_loss(&why, &mut signalled));
                        self.release(hold.take(), reply).await;
                    }
                },
            }
        }
        self.release_quietly(hold).await;
    }

    /// What is next for the held locks.
    async fn due(&self, hold: Option<&Guards>, signalled: bool) -> Due {
        let Some(guards) = hold else { return pending().await };
        let ending = async {
            if self.plan.rules.on_lost == OnLost::Warn || signalled || guards.remaining() == Duration::MAX {
                return pending().await;
            }
            while guards.remaining() > self.plan.rules.grace {
                sleep(guards.remaining().saturating_sub(self.plan.rules.grace)).await;
            }
        };
        let max_hold = async {
            match self.plan.rules.max_hold {
                Some(max) => sleep(max.saturating_sub(self.since.elapsed())).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            loss = guards.lost() => Due::Lost(loss.to_string()),
            () = max_hold => Due::MaxHold,
            () = ending => Due::Ending,
        }
    }

    fn report_loss(&self, why: &str, signalled: &mut bool) -> String {
        if self.plan.rules.on_lost == OnLost::Term {
            self.signal(signalled);
        }
        system_log::warn(&self.sentence(why));
        why.to_owned()
    }

    fn signal(&self, signalled: &mut bool) {
        if !std::mem::replace(signalled, true) {
            // It may have ended.
            let _ = self.watched.signal(Signal::TERM);
        }
    }

    fn sentence(&self, why: &str) -> String {
        let Watched { pid, command, .. } = self.watched;
        let then = match self.plan.rules.on_lost {
            OnLost::Term => "sent TERM to it",
            OnLost::Warn => "it continues and may overlap the next holder",
        };
        format!("{}, held for process {pid} ({command}): {why}; {then}", self.plan.keys.join(", "))
    }

    fn state(&self, hold: Option<&Guards>, lost: Option<&str>) -> Value {
        // A doubtful lock is not held.
        let safe = hold.filter(|guards| guards.is_held());
        let keys = hold.map(|guards| guards.keys().into_iter().map(ToString::to_string).collect::<Vec<_>>());
        json!({
            "keys": keys.as_ref().unwrap_or(&self.plan.keys),
            "backend": self.backend,
            "pid": self.watched.pid,
            "process": self.watched.fingerprint,
            "command": self.watched.command,
            "label": self.acquire.label,
            "lost": lost,
            "request": request(self.plan),
            // Only processes of this user get it.
            "text": safe.map(|guards| self.answer(guards, false)),
            "json": safe.map(|guards| self.answer(guards, true)),
        })
    }

    async fn release(&self, hold: Option<Guards>, reply: Reply) {
        let Some(guards) = hold else { return };
        match timeout(CLOSING, guards.release()).await {
            Ok(Ok(ReleasedAll::Released)) => reply.send(&json!({ "done": true })).await,
            Ok(Ok(ReleasedAll::AlreadyLost { losses })) => {
                let why: Vec<_> = losses.iter().map(ToString::to_string).collect();
                reply.refuse(&why.join(", ")).await;
            }
            Ok(Err(error)) => reply.leave_open(&format!("{error:#}")).await,
            Err(_) => reply.leave_open(&format!("no reply within {}", Span(CLOSING))).await,
        }
    }

    async fn release_quietly(&self, hold: Option<Guards>) {
        if let Some(guards) = hold {
            let _ = timeout(CLOSING, guards.release()).await;
        }
    }
}

async fn next(control: Option<&Control>) -> (Request, Reply) {
    match control {
        Some(control) => control.next().await,
        None => pending().await,
    }
}

fn has(hold: Option<&Guards>, key: &str, holder: HolderId) -> bool {
    let is_it = |(held, of): (&Key, HolderId)| held.as_str() == key && of == holder;
    hold.is_some_and(|guards| guards.keys().into_iter().zip(guards.holders()).any(is_it))
}
