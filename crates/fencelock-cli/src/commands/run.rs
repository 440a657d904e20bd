use super::claim::{Wish, check, claim};
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
use crate::terminal::Terminal;
use crate::ward::{Ward, Watched};
use fencelock::{Client, Error, Guard, Released, Span};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Holds a lock while a command runs, and ends as the command did.
pub(super) async fn run(run: Run, context: &Context) -> Result<Exit, Failure> {
    let plan = Plan::new(run).map_err(|why| Failure::new(Exit::Usage, why))?;
    let mut signals = Signals::listen().map_err(|error| Failure::system("take signals", error))?;
    let client = tokio::select! {
        biased;
        signal = signals.ending() => return Ok(signal.into()),
        client = context.connect_to_wait() => client?,
    };
    let place = check(&plan.key, plan.nested_ok, &client, context)?;
    let exit = hold(&plan, &client, &place, &mut signals, context.report).await;
    let _ = client.close(CLOSING).await;
    exit
}

async fn hold(
    plan: &Plan,
    client: &Client,
    place: &str,
    signals: &mut Signals,
    report: Reporter,
) -> Result<Exit, Failure> {
    let progress = Arc::new(Progress::new(&plan.key, report));
    let claimed = tokio::select! {
        biased;
        signal = signals.ending() => {
            progress.clear();
            report.tell(&Event::GivenUp { signal, waited: progress.waited() });
            return Ok(signal.into());
        }
        claimed = claim(wish(plan), client, &progress) => claimed,
    };
    let guard = claimed.map_err(|error| busy_as(plan, error.into()))?;
    report.tell(&Event::Acquired(&guard));
    let mut shift = Shift { plan, guard: &guard, place, since: Instant::now(), report, loss_told: false };
    let exit = shift.serve(signals).await;
    let loss_told = shift.loss_told;
    let kept = give_back(guard, report, loss_told).await;
    match exit {
        // The command ended by itself, and only the release found out that its lock was gone by then.
        Ok(_) if kept == Kept::No && !loss_told && plan.rules.on_lost == OnLost::Term => Ok(Exit::Lost),
        exit => exit,
    }
}

fn wish(plan: &Plan) -> Wish<'_> {
    Wish { key: &plan.key, ttl: plan.ttl, label: plan.label.as_deref(), wait: plan.wait }
}

fn busy_as(plan: &Plan, failure: Failure) -> Failure {
    match plan.conflict_exit_code {
        Some(code) if failure.exit == Exit::Busy => Failure { exit: Exit::BusyAs(code), ..failure },
        _ => failure,
    }
}

/// What happens between the acquisition and the release.
struct Shift<'a> {
    plan: &'a Plan,
    guard: &'a Guard,
    /// Where it lives, for comparing.
    place: &'a str,
    since: Instant,
    report: Reporter,
    /// The user knows that the lock is lost, or it does not matter any more.
    loss_told: bool,
}

impl Shift<'_> {
    async fn serve(&mut self, signals: &mut Signals) -> Result<Exit, Failure> {
        self.firm().await?;
        if let Some(signal) = signals.pending().await {
            self.report.tell(&Event::GivenUp { signal, waited: Duration::ZERO });
            return Ok(signal.into());
        }
        let terminal = Terminal::find();
        let child = self.start(terminal.as_ref()).await?;
        self.report.tell(&Event::Started { pid: child.group().as_raw_nonzero().get() });
        let ward = Ward::new(self.guard, child, terminal, self.plan.rules, self.since, self.report);
        let watched = ward.watch(signals).await.map_err(|error| Failure::system("wait for the command", error))?;
        let Watched { exit, asked, loss_told } = watched;
        self.loss_told = loss_told;
        if exit != Exit::Lost && !loss_told && !asked {
            self.keep(signals).await;
        }
        Ok(exit)
    }

    /// Waits until the lease is longer than the grace. A lock that was handed over has a short lease at first, which a
    /// renewal makes a full one; judged by it, the command would have to end before it began.
    async fn firm(&mut self) -> Result<(), Failure> {
        while self.guard.remaining() <= self.plan.rules.grace {
            tokio::select! {
                reason = self.guard.lost() => {
                    self.loss_told = true;
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
            // The new process may have had the terminal already when it failed.
            if let (Some(_), Some(terminal)) = (given, terminal) {
                terminal.reclaim();
            }
            let command = self.plan.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
            let (exit, why) = match error.kind() {
                io::ErrorKind::NotFound => (Exit::NotFound, "no such command".to_owned()),
                _ => (Exit::NotExecutable, error.to_string()),
            };
            Failure::new(exit, format!("cannot run {command}: {why}"))
        })
    }

    /// Keeps the lock until the least hold is over, or a signal comes, or it is lost.
    async fn keep(&mut self, signals: &mut Signals) {
        let left = self.plan.hold_for.saturating_sub(self.since.elapsed());
        if left.is_zero() {
            return;
        }
        self.report.tell(&Event::Keeping { left });
        tokio::select! {
            _ = signals.ending() => {}
            why = self.guard.lost() => {
                self.report.tell(&Event::NotKept { key: self.guard.key().as_str(), why: why.to_string() });
                self.loss_told = true;
            }
            () = sleep(left) => {}
        }
    }
}

/// Whether the lock was held to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Yes,
    No,
}

async fn give_back(guard: Guard, report: Reporter, loss_told: bool) -> Kept {
    let key = guard.key().clone();
    match timeout(CLOSING, guard.release()).await {
        Ok(Ok(Released::Released)) => report.tell(&Event::Released),
        Ok(Ok(Released::AlreadyLost { why })) => {
            if !loss_told {
                report.tell(&Event::WasLost { key: key.as_str(), why: why.to_string() });
            }
            return Kept::No;
        }
        Ok(Err(error)) => report.tell(&Event::NotReleased { key: key.as_str(), why: format!("{error:#}") }),
        Err(_) => {
            report.tell(&Event::NotReleased { key: key.as_str(), why: format!("no answer in {}", Span(CLOSING)) });
        }
    }
    Kept::Yes
}
