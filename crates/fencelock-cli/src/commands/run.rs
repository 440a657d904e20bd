use super::claim::{Claimed, check, check_election, claim};
use super::in_the_way;
use crate::args::OnLost;
use crate::child::Child;
use crate::context::{CLOSING, Context, LEAVING, leaving};
use crate::descendants::reap_orphans;
use crate::exit::{Exit, Failure};
use crate::json::{millis, window_done};
use crate::keeper::held_above;
use crate::metrics_file::RunMetrics;
use crate::nesting::{Nesting, of_each};
use crate::plan::Plan;
use crate::proc::is_blind;
use crate::progress::Progress;
use crate::report::{BLIND, Event, Reporter};
use crate::signals::{Signals, is_interrupt};
use crate::supervisor::{Supervised, Supervisor};
use crate::terminal::{Terminal, in_foreground};
use crate::{metrics_file, mode, not_found, secrets};
use fencelock::{Client, Error, Guards, Held, Key, Span, UnfinishedRun};
use rustix::process::Signal;
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Holds locks while a command runs, and exits with its status. A leader that has lost them campaigns again.
pub(super) async fn run(plan: Result<Plan, String>, context: &Context) -> Result<Exit, Failure> {
    let mut plan = plan.map_err(|why| Failure::new(Exit::Usage, why))?;
    metrics_file::check(&plan)?;
    if is_blind() {
        context.report.emit(&Event::info("no_proc", BLIND, json!({ "reason": BLIND })));
    }
    let mut signals = Signals::listen().map_err(|error| Failure::system("handle signals", error))?;
    let prepare = async {
        let client = context.connect_to_wait().await?;
        if plan.campaigns {
            check_election(&plan, &client)?;
        }
        let backend = check_all(&mut plan, &client, context).await?;
        Ok::<_, Failure>((client, backend))
    };
    let prepared = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(signal.into()),
        prepared = prepare => prepared,
    };
    let (client, backend) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => {
            RunMetrics::new(&plan, context.report).write_end(failure.exit).await;
            return Err(failure);
        }
    };
    let ended = loop {
        let mut metrics = RunMetrics::new(&plan, context.report);
        let ended = hold(&plan, &client, &backend, &mut signals, context.report, &mut metrics).await;
        metrics.write_end(ended.as_ref().map_or_else(|failure| failure.exit, |ended| ended.exit)).await;
        // A lock may also be lost before the command is started.
        let by_loss = ended.as_ref().map_or_else(|failure| failure.exit == Exit::Lost, |ended| ended.by_loss);
        if !plan.campaigns || !by_loss {
            break ended;
        }
        let text = format!("{}: the leadership is lost; campaigning again", plan.keys[0]);
        context.report.emit(&Event::info("campaigning", text, json!({ "key": plan.keys[0] })));
    };
    let _ = client.close(ended.as_ref().map_or_else(|_| leaving(&ended), |ended| ended.closing)).await;
    ended.map(|ended| ended.exit)
}

/// Refuses to wait for locks that this program runs under. Returns their backend.
pub(crate) async fn check_all(plan: &mut Plan, client: &Client, context: &Context) -> Result<String, Failure> {
    let (mut backend, waits) = (String::new(), plan.wait != Some(Duration::ZERO) && !plan.nested_ok);
    if plan.tree.is_some() {
        if plan.is_wider {
            let text = format!("{} is locked, the directory before the wildcard", plan.keys[0]);
            context.report.emit(&Event::info("wider", text, json!({ "path": plan.keys[0] })));
        }
        backend = check(&plan.keys[0], true, client, context).await?;
        if !plan.nested_ok {
            plan.has = Nesting::of_this_process().has(plan, &backend, client).await?;
        }
        return Ok(backend);
    }
    for key in &plan.keys {
        backend = check(key, !waits, client, context).await?;
    }
    if let Some(slots) = plan.slots.filter(|_| waits) {
        Nesting::of_this_process().check_slots(&plan.keys[0], slots, &backend, client).await?;
    }
    Ok(backend)
}

/// How one hold of the locks has ended.
#[derive(Debug, Clone, Copy)]
struct Ended {
    exit: Exit,
    /// The command was terminated, or not started, because a lock was lost, and not because of a signal.
    by_loss: bool,
    /// How long to wait for releases that are not confirmed.
    closing: Duration,
}

impl Ended {
    fn by_itself(exit: impl Into<Exit>) -> Self {
        Self { exit: exit.into(), by_loss: false, closing: LEAVING }
    }
}

/// Waits for the locks, and holds them while the command runs.
async fn hold(
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
            report.emit(&Event::given_up(signal, progress.waited()));
            return Ok(Ended::by_itself(signal));
        }
        result = claim(plan, client, &progress) => result,
        refused = held_above(plan, None, backend, client) => {
            progress.clear();
            return Err(refused);
        }
        // What an earlier command of `elect` has left.
        never = reap_orphans() => match never {},
    };
    let (guards, once, slot) = match result {
        Err(error) => return Err(busy_as(plan, refused(plan, error, client).await)),
        Ok(Claimed::Held { guards, once, slot }) => (guards, once, slot),
        Ok(Claimed::AlreadyDone(done)) => {
            let fields = json!({ "key": done.key().as_str(), "done": window_done(&done) });
            report.emit(&Event::info("already_done", format!("{}: {done}", done.key()), fields));
            return Ok(Ended::by_itself(Exit::Success));
        }
    };
    for ((key, holder), fence) in guards.keys().into_iter().zip(guards.holders()).zip(guards.fencing_tokens()) {
        let text = format!("acquired {key} with fencing token {fence}");
        let fields = json!({ "key": key.as_str(), "holder": holder.to_string(), "fence": fence.get() });
        report.emit(&Event::detail("acquired", text, fields));
    }
    let since = Instant::now();
    let mut session = RunSession { plan, guards: &guards, once, slot, backend, since, report, loss_reported: false };
    let ended = session.run(signals, metrics).await;
    let loss_reported = session.loss_reported;
    let (held, closing) = release(guards, client, report, loss_reported).await;
    let ended = match ended {
        // The command exited by itself, and only the release detected the loss of the lock.
        Ok(Ended { by_loss: false, .. }) if !held && !loss_reported && plan.rules.on_lost == OnLost::Term => {
            Ok(Ended::by_itself(Exit::Lost))
        }
        ended => ended,
    };
    ended.map(|ended| Ended { closing, ..ended })
}

/// The error of a claim. A slot is busy only if all are.
pub(crate) async fn refused(plan: &Plan, error: Error, client: &Client) -> Failure {
    let failure = in_the_way::refused(plan, error.into(), client).await;
    match plan.slots {
        Some(slots) if failure.exit == Exit::Busy => {
            Failure::new(failure.exit, format!("all slots of {} are held ({slots}): {}", plan.keys[0], failure.message))
        }
        _ => failure,
    }
}

fn busy_as(plan: &Plan, failure: Failure) -> Failure {
    match plan.conflict_exit_code {
        Some(code) if failure.exit == Exit::Busy => Failure { exit: Exit::BusyAs(code), ..failure },
        _ => failure,
    }
}

/// Waits until the lease is long enough for the command. A transferred lock has a short lease until its first renewal; without this
/// wait, the command would be terminated before it starts.
pub(crate) async fn wait_for_full_lease(guards: &Guards, plan: &Plan) -> Result<(), Failure> {
    while guards.remaining() <= plan.least_lease() {
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
        let lease = wait_for_full_lease(self.guards, self.plan).await;
        self.loss_reported = lease.is_err();
        lease?;
        if let Some(signal) = signals.pending().await {
            self.report.emit(&Event::given_up(signal, Duration::ZERO));
            return Ok(Ended::by_itself(signal));
        }
        metrics.start().await;
        let terminal = Terminal::find();
        let child = self.start(terminal.as_ref()).await?;
        let pid = child.pid.as_raw_pid();
        let text = format!("started the command as process {pid}");
        self.report.emit(&Event::detail("started", text, json!({ "pid": pid })));
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
        self.report.emit(&Event::detail("recorded", "recorded the success", json!({})));
        Ok(())
    }

    async fn start(&self, terminal: Option<&Terminal>) -> Result<Child, Failure> {
        // The key of a slot ends with its number.
        let keys: Vec<_> = self.guards.keys().into_iter().map(ToString::to_string).collect();
        let mut environment = Nesting::of_this_process().with(&keys, self.backend);
        let holders: Vec<_> = self.guards.holders().iter().map(ToString::to_string).collect();
        let fences: Vec<_> = self.guards.fencing_tokens().iter().map(ToString::to_string).collect();
        environment.extend(of_each("FENCELOCK_HOLDER", "FENCELOCK_HOLDERS", &holders));
        environment.extend(of_each("FENCELOCK_FENCE", "FENCELOCK_FENCES", &fences));
        // The slot of an outer command is not passed on.
        environment.push(("FENCELOCK_SLOT", self.slot.map(|slot| slot.to_string())));
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
        let text = format!("holding the lock for another {}", Span(left));
        self.report.emit(&Event::detail("keeping", text, json!({ "left_ms": millis(left) })));
        tokio::select! {
            signal = signals.ending() => return Some(signal),
            loss = self.guards.lost() => {
                let text = format!("{} was lost before --hold-for elapsed: {loss}", loss.key);
                let fields = json!({ "key": loss.key.as_str(), "reason": loss.to_string() });
                self.report.emit(&Event::notice("not_kept", text, fields));
                self.loss_reported = true;
            }
            never = reap_orphans() => match never {},
            () = sleep(left) => {}
        }
        None
    }
}

/// Returns whether all locks were held until then, and how long releases may still take in the background.
async fn release(guards: Guards, client: &Client, report: Reporter, loss_reported: bool) -> (bool, Duration) {
    let keys: Vec<_> = guards.keys().into_iter().map(ToString::to_string).collect();
    let held = guards.held();
    // A release is of no use when the leases are over.
    let lease_ends = held.parts().iter().map(Held::remaining).max().unwrap_or_default();
    let begun = Instant::now();
    let closing = || CLOSING.min(lease_ends.saturating_sub(begun.elapsed()));
    let was_lost = |error: &Error| {
        for loss in error.losses().iter().filter(|_| !loss_reported) {
            let (key, why) = (&loss.key, loss.to_string());
            let text = format!("{key} was lost before the command exited: {why}");
            report.emit(&Event::notice("was_lost", text, json!({ "key": key.as_str(), "reason": why })));
        }
        false
    };
    let limit = closing();
    let (key, why) = match timeout(limit, guards.release()).await {
        Ok(Ok(())) => {
            report.emit(&Event::detail("released", "released the lock", json!({})));
            return (true, closing());
        }
        Ok(Err(error)) if error.is_lost() => return (was_lost(&error), closing()),
        // It is tried for longer than this error says.
        Ok(Err(Error::Unreachable { key, cause, .. })) => (key, cause.to_string()),
        Ok(Err(error)) => (error.key().cloned(), format!("{error:#}")),
        Err(_) => (None, format!("no reply within {}", Span(limit))),
    };
    // Without a reply, a loss that was detected before still counts.
    let were_held = held.check().err().as_ref().is_none_or(was_lost);
    if loss_reported || !were_held {
        // The user knows that the lease ends.
        return (were_held, closing());
    }
    // The release continues in the background, and no other lock follows.
    let unconfirmed = client.clone().close(closing()).await.is_err();
    let tried = begun.elapsed();
    let left = lease_ends.saturating_sub(tried);
    if unconfirmed && !left.is_zero() {
        let (left_for, tried) = (Span(left), Span(tried));
        let text = format!(
            "not released, so others wait for up to {left_for}, until the lease ends: {why} (tried for {tried})"
        );
        let event = Event::notice("not_released", text, json!({ "reason": why, "left_ms": millis(left) }));
        report.emit(&event.about(&keys, key.as_ref().map(Key::as_str)));
    }
    (were_held, Duration::ZERO)
}
