use super::claim::{Begun, ClaimRequest, begin, check, claim};
use super::slots;
use crate::args::{OnLost, Run};
use crate::child::Child;
use crate::context::{CLOSING, Context, LEAVING};
use crate::descendants::reap_orphans;
use crate::exit::{Exit, Failure};
use crate::keeper::held_above;
use crate::metrics_file::RunMetrics;
use crate::nesting::{Nesting, only};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::{Event, Locks, Reporter};
use crate::signals::{Signals, is_interrupt};
use crate::supervisor::{Supervised, Supervisor};
use crate::terminal::{Terminal, in_foreground};
use crate::{metrics_file, mode, not_found, secrets};
use fencelock::{Client, Error, Guards, Held, Key, ReleasedAll, Span, UnfinishedRun};
use rustix::process::Signal;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Holds locks while a command runs, and exits with its status.
pub(super) async fn run(run: Run, context: &Context) -> Result<Exit, Failure> {
    let plan = Plan::new(run).map_err(|why| Failure::new(Exit::Usage, why))?;
    metrics_file::check(&plan)?;
    context.report.emit_if_blind();
    let mut signals = Signals::listen().map_err(|error| Failure::system("handle signals", error))?;
    let prepare = async {
        let client = context.connect_to_wait().await?;
        let backend = check_all(&plan, &client, context).await?;
        Ok((client, backend))
    };
    let (client, backend) = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(signal.into()),
        prepared = metrics_file::write_failure(&plan, context.report, prepare) => prepared?,
    };
    let ended = hold(&plan, &client, &backend, &mut signals, context.report).await;
    let _ = client.close(ended.as_ref().map_or(LEAVING, |ended| ended.closing)).await;
    ended.map(|ended| ended.exit)
}

/// Refuses locks that this program runs under. Returns their backend.
pub(crate) async fn check_all(plan: &Plan, client: &Client, context: &Context) -> Result<String, Failure> {
    let mut backend = String::new();
    for key in &plan.keys {
        backend = check(key, plan.nested_ok, client, context).await?;
    }
    if let Some(slots) = plan.slots.filter(|_| !plan.nested_ok) {
        Nesting::of_this_process().check_slots(&plan.keys[0], slots, &backend, client).await?;
    }
    Ok(backend)
}

/// How one hold of the locks has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) exit: Exit,
    /// The command was terminated, or not started, because a lock was lost, and not because of a signal.
    pub(super) by_loss: bool,
    /// How long to wait for releases that are not confirmed.
    pub(super) closing: Duration,
}

impl Ended {
    fn by_itself(exit: impl Into<Exit>) -> Self {
        Self { exit: exit.into(), by_loss: false, closing: LEAVING }
    }
}

/// Waits for the locks, and holds them while the command runs.
pub(super) async fn hold(
    plan: &Plan,
    client: &Client,
    backend: &str,
    signals: &mut Signals,
    report: Reporter,
) -> Result<Ended, Failure> {
    let mut metrics = RunMetrics::new(plan, report);
    let ended = hold_once(plan, client, backend, signals, report, &mut metrics).await;
    metrics.write_end(ended.as_ref().map_or_else(|failure| failure.exit, |ended| ended.exit)).await;
    ended
}

async fn hold_once(
    plan: &Plan,
    client: &Client,
    backend: &str,
    signals: &mut Signals,
    report: Reporter,
    metrics: &mut RunMetrics<'_>,
) -> Result<Ended, Failure> {
    let progress = Arc::new(Progress::of_keys(&plan.keys, report));
    let result = tokio::select! {
        biased;
        signal = signals.ending() => {
            progress.clear();
            report.emit(&Event::GivenUp { signal, waited: progress.waited() });
            return Ok(Ended::by_itself(signal));
        }
        result = claim_locks(plan, client, &progress) => result,
        refused = held_above(plan.into(), backend, client) => {
            progress.clear();
            return Err(refused);
        }
        // What an earlier command of `elect` has left.
        never = reap_orphans() => match never {},
    };
    let (guards, once, slot) = match result.map_err(|error| busy_as(plan, error.into()))? {
        Acquired::Guards(guards) => (guards, None, None),
        Acquired::Slot(guards, slot) => (guards, None, Some(slot)),
        Acquired::Begun(Begun::Run(guards, once)) => (guards, Some(once), None),
        Acquired::Begun(Begun::AlreadyDone(done)) => {
            report.emit(&Event::AlreadyDone(&done));
            return Ok(Ended::by_itself(Exit::Success));
        }
    };
    for ((key, holder), fence) in guards.keys().into_iter().zip(guards.holders()).zip(guards.fencing_tokens()) {
        report.emit(&Event::Acquired { key, holder, fence });
    }
    let since = Instant::now();
    let mut session = RunSession { plan, guards: &guards, once, slot, backend, since, report, loss_reported: false };
    let ended = session.run(signals, metrics).await;
    let loss_reported = session.loss_reported;
    let (held, closing) = release(guards, client, report, loss_reported).await;
    let ended = match ended {
        // The command exited by itself, and only the release detected the loss of the lock.
        Ok(Ended { by_loss: false, .. })
            if held == HeldUntilRelease::No && !loss_reported && plan.rules.on_lost == OnLost::Term =>
        {
            Ok(Ended::by_itself(Exit::Lost))
        }
        ended => ended,
    };
    ended.map(|ended| Ended { closing, ..ended })
}

/// The time until the last of the leases ends.
fn longest_lease(guards: &Guards) -> Duration {
    guards.held().parts().iter().map(Held::remaining).max().unwrap_or_default()
}

/// The locks that the command runs under.
#[allow(clippy::large_enum_variant, reason = "there is one, and it is matched right away")]
pub(crate) enum Acquired {
    Guards(Guards),
    /// A slot, with its number.
    Slot(Guards, u32),
    Begun(Begun),
}

pub(crate) async fn claim_locks(plan: &Plan, client: &Client, progress: &Arc<Progress>) -> Result<Acquired, Error> {
    let request = claim_request(plan);
    if let Some(many) = plan.slots {
        return slots::acquire(plan, many, request, client, progress)
            .await
            .map(|(guards, slot)| Acquired::Slot(guards, slot));
    }
    match plan.once {
        Some(once) => begin(&plan.keys[0], once, request, client, progress).await.map(Acquired::Begun),
        None => claim(&plan.keys, request, client, progress).await.map(Acquired::Guards),
    }
}

fn claim_request(plan: &Plan) -> ClaimRequest<'_> {
    ClaimRequest { mode: plan.mode, ttl: plan.ttl, label: plan.label.as_deref(), wait: plan.wait }
}

fn busy_as(plan: &Plan, failure: Failure) -> Failure {
    match plan.conflict_exit_code {
        Some(code) if failure.exit == Exit::Busy => Failure { exit: Exit::BusyAs(code), ..failure },
        _ => failure,
    }
}

/// Waits until the lease is longer than the grace period. A transferred lock has a short lease until its first renewal; without this
/// wait, the command would be terminated before it starts.
pub(crate) async fn wait_for_full_lease(guards: &Guards, grace: Duration) -> Result<(), Failure> {
    while guards.remaining() <= grace {
        tokio::select! {
            loss = guards.lost() => {
                return Err(Failure::new(Exit::Lost, format!("the lock on {} is lost: {loss}", loss.key)));
            }
            () = sleep(Duration::from_millis(2)) => {}
        }
    }
    Ok(())
}

/// The time between the acquisition and the release.
struct RunSession<'a> {
    plan: &'a Plan,
    guards: &'a Guards,
    /// Counts the success of the command, with --once-per.
    once: Option<UnfinishedRun>,
    /// The number of the slot, with --slots.
    slot: Option<u32>,
    /// The backend of the locks, in a form that can be compared.
    backend: &'a str,
    since: Instant,
    report: Reporter,
    /// The loss of a lock was reported to the user.
    loss_reported: bool,
}

impl RunSession<'_> {
    async fn run(&mut self, signals: &mut Signals, metrics: &mut RunMetrics<'_>) -> Result<Ended, Failure> {
        let lease = wait_for_full_lease(self.guards, self.plan.rules.grace).await;
        self.loss_reported = lease.is_err();
        lease?;
        if let Some(signal) = signals.pending().await {
            self.report.emit(&Event::GivenUp { signal, waited: Duration::ZERO });
            return Ok(Ended::by_itself(signal));
        }
        metrics.start().await;
        let terminal = Terminal::find();
        let child = self.start(terminal.as_ref()).await?;
        self.report.emit(&Event::Started { pid: child.group().as_raw_nonzero().get() });
        let supervisor = Supervisor::new(self.guards.held(), child, terminal, self.plan.rules, self.since, self.report);
        let watched =
            supervisor.watch(signals).await.map_err(|error| Failure::system("wait for the command", error))?;
        metrics.end();
        let Supervised { exit, by_signal, loss_reported } = watched;
        self.loss_reported = loss_reported;
        if exit.code() == 0 {
            self.record_success().await?;
        }
        if exit != Exit::Lost && !loss_reported && !by_signal {
            let signal = self.hold_for_minimum(signals).await;
            // ^C is also meant for the script around this program.
            if let Some(signal) = signal.filter(|signal| is_interrupt(*signal) && in_foreground()) {
                return Ok(Ended::by_itself(signal));
            }
        }
        Ok(Ended { by_loss: exit == Exit::Lost && !by_signal, ..Ended::by_itself(exit) })
    }

    async fn record_success(&mut self) -> Result<(), Failure> {
        let Some(once) = self.once.take() else { return Ok(()) };
        let recorded = once.succeed().await.map_err(Failure::from);
        recorded.map_err(|Failure { exit, message }| {
            self.loss_reported |= exit == Exit::Lost;
            let why = format!("the command succeeded, but that is not recorded, so it may run again: {message}");
            Failure { exit, message: why }
        })?;
        self.report.emit(&Event::Recorded);
        Ok(())
    }

    async fn start(&self, terminal: Option<&Terminal>) -> Result<Child, Failure> {
        // The key of a slot ends with its number.
        let keys: Vec<_> = self.guards.keys().into_iter().map(ToString::to_string).collect();
        let mut environment = Nesting::of_this_process().with(&keys, self.backend).to_vec();
        let holders: Vec<_> = self.guards.holders().iter().map(ToString::to_string).collect();
        let fences: Vec<_> = self.guards.fencing_tokens().iter().map(ToString::to_string).collect();
        environment.extend([
            ("FENCELOCK_HOLDER", only(&holders)),
            ("FENCELOCK_HOLDERS", Some(holders.join("\n"))),
            ("FENCELOCK_FENCE", only(&fences)),
            ("FENCELOCK_FENCES", Some(fences.join("\n"))),
            // The slot of an outer command is not passed on.
            ("FENCELOCK_SLOT", self.slot.map(|slot| slot.to_string())),
        ]);
        let (weight, limit) = mode::permits(self.plan.mode);
        environment.extend([
            ("FENCELOCK_MODE", Some(mode::name(self.plan.mode).to_owned())),
            ("FENCELOCK_WEIGHT", weight.map(|weight| weight.to_string())),
            ("FENCELOCK_PERMITS", limit.map(|limit| limit.to_string())),
        ]);
        if !self.plan.pass_url {
            environment.extend(secrets::withheld().into_iter().map(|name| (name, None)));
        }
        let given = terminal.and_then(Terminal::for_start);
        let locks =
            self.guards.descriptors().map_err(|error| Failure::system("copy the open files of the locks", error))?;
        Child::start(&self.plan.command, &environment, given, &locks).await.map_err(|error| {
            // The new process may already have taken the terminal when it failed.
            if let (Some(_), Some(terminal)) = (given, terminal) {
                terminal.reclaim();
            }
            let command = self.plan.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
            let (exit, why) = match error.kind() {
                io::ErrorKind::NotFound => (Exit::NotFound, not_found::explain(&self.plan.command)),
                io::ErrorKind::WouldBlock => (Exit::System, Failure::why_not_started(&error)),
                _ => (Exit::NotExecutable, error.to_string()),
            };
            Failure::new(exit, format!("cannot run {command}: {why}"))
        })
    }

    /// Holds the locks until --hold-for elapses, a signal arrives, which is returned, or one of them is lost.
    async fn hold_for_minimum(&mut self, signals: &mut Signals) -> Option<Signal> {
        let left = self.plan.hold_for.saturating_sub(self.since.elapsed());
        if left.is_zero() {
            return None;
        }
        self.report.emit(&Event::Keeping { left });
        tokio::select! {
            signal = signals.ending() => return Some(signal),
            loss = self.guards.lost() => {
                self.report.emit(&Event::NotKept { key: loss.key.as_str(), why: loss.to_string() });
                self.loss_reported = true;
            }
            never = reap_orphans() => match never {},
            () = sleep(left) => {}
        }
        None
    }
}

/// Whether all locks were held until the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldUntilRelease {
    Yes,
    No,
}

/// Also returns how long releases may still take in the background.
async fn release(
    guards: Guards,
    client: &Client,
    report: Reporter,
    loss_reported: bool,
) -> (HeldUntilRelease, Duration) {
    let keys: Vec<_> = guards.keys().into_iter().map(ToString::to_string).collect();
    let held = guards.held();
    // A release is of no use when the leases are over.
    let (lease_ends, begun) = (longest_lease(&guards), Instant::now());
    let closing = || CLOSING.min(lease_ends.saturating_sub(begun.elapsed()));
    let was_lost = |key: &Key, why| {
        if !loss_reported {
            report.emit(&Event::WasLost { key: key.as_str(), why });
        }
        HeldUntilRelease::No
    };
    let limit = closing();
    let (key, why) = match timeout(limit, guards.release()).await {
        Ok(Ok(ReleasedAll::Released)) => {
            report.emit(&Event::Released);
            return (HeldUntilRelease::Yes, closing());
        }
        Ok(Ok(ReleasedAll::AlreadyLost { losses })) => {
            for loss in losses {
                was_lost(&loss.key, loss.to_string());
            }
            return (HeldUntilRelease::No, closing());
        }
        Ok(Err(error)) => (error.key().cloned(), format!("{error:#}")),
        Err(_) => (None, format!("no reply within {}", Span(limit))),
    };
    // Without a reply, a loss that was detected before still counts.
    let until_release = match held.check() {
        Err(Error::Lost { key, reason, .. }) => was_lost(&key, reason.to_string()),
        _ => HeldUntilRelease::Yes,
    };
    if loss_reported || until_release == HeldUntilRelease::No {
        // The user knows that the lease ends.
        return (until_release, closing());
    }
    // The release continues in the background, and no other lock follows.
    let unconfirmed = client.clone().close(closing()).await.is_err();
    if unconfirmed && begun.elapsed() < lease_ends {
        report.emit(&Event::NotReleased { locks: Locks::all(&keys).with_one(key.as_ref().map(Key::as_str)), why });
    }
    (until_release, Duration::ZERO)
}
