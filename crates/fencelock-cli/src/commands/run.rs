use super::claim::{ClaimRequest, check, claim};
use crate::args::{OnLost, Run};
use crate::child::Child;
use crate::context::{CLOSING, Context};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::nesting::Nesting;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::{Event, Reporter};
use crate::secrets;
use crate::signals::Signals;
use crate::supervisor::{Supervised, Supervisor};
use crate::terminal::Terminal;
use fencelock::{Client, Error, Guard, Released, Span};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Holds a lock while a command runs, and exits with its status.
pub(super) async fn run(run: Run, context: &Context) -> Result<Exit, Failure> {
    let plan = Plan::new(run).map_err(|why| Failure::new(Exit::Usage, why))?;
    let mut signals = Signals::listen().map_err(|error| Failure::system("handle signals", error))?;
    let client = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(signal.into()),
        client = context.connect_to_wait() => client?,
    };
    let place = check(&plan.key, plan.nested_ok, &client, context)?;
    let ended = hold(&plan, &client, &place, &mut signals, context.report).await;
    let _ = client.close(CLOSING).await;
    ended.map(|ended| ended.exit)
}

/// How one hold of the lock has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) exit: Exit,
    /// The command was terminated, or not started, because the lock was lost. No signal has asked for that.
    pub(super) by_loss: bool,
}

impl Ended {
    fn by_itself(exit: impl Into<Exit>) -> Self {
        Self { exit: exit.into(), by_loss: false }
    }
}

/// Waits for the lock, and holds it while the command runs.
pub(super) async fn hold(
    plan: &Plan,
    client: &Client,
    place: &str,
    signals: &mut Signals,
    report: Reporter,
) -> Result<Ended, Failure> {
    let progress = Arc::new(Progress::new(&plan.key, report));
    let result = tokio::select! {
        biased;
        signal = signals.ending() => {
            progress.clear();
            report.tell(&Event::GivenUp { signal, waited: progress.waited() });
            return Ok(Ended::by_itself(signal));
        }
        result = claim(claim_request(plan), client, &progress) => result,
    };
    let guard = result.map_err(|error| busy_as(plan, error.into()))?;
    report.tell(&Event::Acquired(&guard));
    let mut session = RunSession { plan, guard: &guard, place, since: Instant::now(), report, loss_reported: false };
    let ended = session.run(signals).await;
    let loss_reported = session.loss_reported;
    let held = release(guard, report, loss_reported).await;
    match ended {
        // The command exited by itself, and only the release detected the loss of the lock.
        Ok(Ended { by_loss: false, .. })
            if held == HeldUntilRelease::No && !loss_reported && plan.rules.on_lost == OnLost::Term =>
        {
            Ok(Ended::by_itself(Exit::Lost))
        }
        ended => ended,
    }
}

fn claim_request(plan: &Plan) -> ClaimRequest<'_> {
    ClaimRequest { key: &plan.key, ttl: plan.ttl, label: plan.label.as_deref(), wait: plan.wait }
}

fn busy_as(plan: &Plan, failure: Failure) -> Failure {
    match plan.conflict_exit_code {
        Some(code) if failure.exit == Exit::Busy => Failure { exit: Exit::BusyAs(code), ..failure },
        _ => failure,
    }
}

/// The time between the acquisition and the release.
struct RunSession<'a> {
    plan: &'a Plan,
    guard: &'a Guard,
    /// The backend of the lock, in a form that can be compared.
    place: &'a str,
    since: Instant,
    report: Reporter,
    /// The loss of the lock was reported to the user.
    loss_reported: bool,
}

impl RunSession<'_> {
    async fn run(&mut self, signals: &mut Signals) -> Result<Ended, Failure> {
        self.wait_for_full_lease().await?;
        if let Some(signal) = signals.pending().await {
            self.report.tell(&Event::GivenUp { signal, waited: Duration::ZERO });
            return Ok(Ended::by_itself(signal));
        }
        let terminal = Terminal::find();
        let child = self.start(terminal.as_ref()).await?;
        self.report.tell(&Event::Started { pid: child.group().as_raw_nonzero().get() });
        let supervisor = Supervisor::new(self.guard, child, terminal, self.plan.rules, self.since, self.report);
        let watched =
            supervisor.watch(signals).await.map_err(|error| Failure::system("wait for the command", error))?;
        let Supervised { exit, asked, loss_reported } = watched;
        self.loss_reported = loss_reported;
        if exit != Exit::Lost && !loss_reported && !asked {
            self.hold_for_minimum(signals).await;
        }
        Ok(Ended { exit, by_loss: exit == Exit::Lost && !asked })
    }

    /// Waits until the lease is longer than the grace period. A transferred lock has a short lease until its first
    /// renewal; without this wait, the command would be terminated before it starts.
    async fn wait_for_full_lease(&mut self) -> Result<(), Failure> {
        while self.guard.remaining() <= self.plan.rules.grace {
            tokio::select! {
                reason = self.guard.lost() => {
                    self.loss_reported = true;
                    return Err(Error::lost(self.guard.key().clone(), reason).into());
                }
                () = sleep(Duration::from_millis(2)) => {}
            }
        }
        Ok(())
    }

    async fn start(&self, terminal: Option<&Terminal>) -> Result<Child, Failure> {
        let [key, place, outer] = Nesting::of_this_process().with(self.guard.key().as_str(), self.place);
        let holder = ("FENCELOCK_HOLDER", self.guard.holder().to_string());
        let fence = ("FENCELOCK_FENCE", self.guard.fencing_token().to_string());
        let mut environment: Vec<_> =
            [key, place, outer, holder, fence].into_iter().map(|(name, value)| (name, Some(value))).collect();
        if !self.plan.pass_url {
            environment.extend(secrets::withheld().into_iter().map(|name| (name, None)));
        }
        let given = terminal.and_then(Terminal::for_start);
        Child::start(&self.plan.command, &environment, given).await.map_err(|error| {
            // The new process may already have taken the terminal when it failed.
            if let (Some(_), Some(terminal)) = (given, terminal) {
                terminal.reclaim();
            }
            let command = self.plan.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
            let (exit, why) = match error.kind() {
                io::ErrorKind::NotFound => (Exit::NotFound, "command not found".to_owned()),
                _ => (Exit::NotExecutable, error.to_string()),
            };
            Failure::new(exit, format!("cannot run {command}: {why}"))
        })
    }

    /// Holds the lock until --hold-for elapses, a signal arrives, or the lock is lost.
    async fn hold_for_minimum(&mut self, signals: &mut Signals) {
        let left = self.plan.hold_for.saturating_sub(self.since.elapsed());
        if left.is_zero() {
            return;
        }
        self.report.tell(&Event::Keeping { left });
        tokio::select! {
            _ = signals.ending() => {}
            why = self.guard.lost() => {
                self.report.tell(&Event::NotKept { key: self.guard.key().as_str(), why: why.to_string() });
                self.loss_reported = true;
            }
            () = sleep(left) => {}
        }
    }
}

/// Whether the lock was held until the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldUntilRelease {
    Yes,
    No,
}

async fn release(guard: Guard, report: Reporter, loss_reported: bool) -> HeldUntilRelease {
    let key = guard.key().clone();
    match timeout(CLOSING, guard.release()).await {
        Ok(Ok(Released::Released)) => report.tell(&Event::Released),
        Ok(Ok(Released::AlreadyLost { why })) => {
            if !loss_reported {
                report.tell(&Event::WasLost { key: key.as_str(), why: why.to_string() });
            }
            return HeldUntilRelease::No;
        }
        Ok(Err(error)) => report.tell(&Event::NotReleased { key: key.as_str(), why: format!("{error:#}") }),
        Err(_) => {
            report.tell(&Event::NotReleased { key: key.as_str(), why: format!("no reply within {}", Span(CLOSING)) });
        }
    }
    HeldUntilRelease::Yes
}
