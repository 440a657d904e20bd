use crate::args::{Acquire, OnLost, Run};
use crate::commands::elect::args::Elect;
use crate::commands::once::args::OncePer;
use crate::mode::ModeArguments;
use crate::paths::{PathArguments, is_part};
use fencelock::contract::{KeySet, RenewalPlan};
use fencelock::{Key, Mode, Span, TreePath};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What a command acquires, and what runs under it: validated arguments with defaults filled in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option, or the nature of a command")]
pub(crate) struct Plan {
    /// In the order in which they were given; of a path its name.
    pub(crate) keys: Vec<String>,
    /// The path that is locked instead of keys.
    pub(crate) tree: Option<TreePath>,
    /// That is more than was asked for.
    #[serde(skip)]
    pub(crate) is_wider: bool,
    /// The keys of the path that need not be claimed: who asks has them.
    #[serde(skip)]
    pub(crate) has: Vec<String>,
    #[serde(with = "crate::mode::text")]
    pub(crate) mode: Mode,
    #[serde(skip)]
    pub(crate) command: Vec<OsString>,
    /// `None` if there is no limit.
    pub(crate) wait: Option<Duration>,
    pub(crate) nested_ok: bool,
    pub(crate) ttl: Duration,
    pub(crate) label: Option<String>,
    pub(crate) hold_for: Duration,
    pub(crate) rules: Rules,
    pub(crate) conflict_exit_code: Option<u8>,
    /// The number of slots; the command needs one of them.
    pub(crate) slots: Option<u32>,
    /// The command succeeds at most once in each window.
    #[serde(skip)]
    pub(crate) once: Option<OncePer>,
    /// Pass the password to the command.
    pub(crate) pass_url: bool,
    /// Where to write what became of it.
    #[serde(skip)]
    pub(crate) metrics: Option<PathBuf>,
    /// After a loss the command is run again under the next lock: that of an election.
    #[serde(skip)]
    pub(crate) campaigns: bool,
    /// What the process has left in its group is ended before the lock.
    pub(crate) end_group: bool,
    /// Also a lock that is a slot of a key is in the way.
    #[serde(skip)]
    pub(crate) awaits_slots: bool,
}

/// When to terminate the command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// Time between TERM and KILL.
    pub(crate) grace: Duration,
    /// The maximum hold time.
    pub(crate) max_hold: Option<Duration>,
    /// The action on a lost lock.
    pub(crate) on_lost: OnLost,
}

/// Programs that clean up on TERM need a few seconds.
const LONGEST_DEFAULT_GRACE: Duration = Duration::from_secs(10);
/// With a longer grace period, a lease survives only a shorter outage. A sixth of the TTL leaves a quarter for an outage, see
/// [`RenewalPlan`].
const DEFAULT_GRACE_SHARE: u32 = 6;

impl Plan {
    /// A command that starts with less than this may be terminated before the answer to a renewal.
    pub(crate) fn least_lease(&self) -> Duration {
        self.rules.grace + RenewalPlan::answer_limit(self.ttl)
    }

    /// The keys of a path that are to be claimed.
    pub(crate) fn of_path(&self) -> Option<Vec<(Key, Mode)>> {
        let mut locks = self.tree.as_ref()?.locks(self.mode);
        locks.retain(|lock| !self.has.iter().any(|has| is_part(lock, has)));
        Some(locks)
    }

    /// The error names the options that contradict each other.
    pub(crate) fn new(run: Run) -> Result<Self, String> {
        let command = command(&run)?;
        let once = run.once.window.check()?.then_some(run.once);
        let alone = run.slots.is_some() || run.mode.permits.is_some() || once.is_some();
        let locks = of_locks(run.key.as_deref(), &run.more_keys, &run.tree, alone)?;
        let option = once.map(|once| once.window.option()).or(run.slots.map(|_| "--slots"));
        let mode = mode(run.mode, option, &locks.keys)?;
        let ttl = run.lease.ttl;
        let grace = grace(ttl, run.grace)?;
        if let (Some(max), Some(least)) = (run.max_hold, run.hold_for)
            && least > max
        {
            return Err(format!("--hold-for {} is longer than --max-hold {}", Span(least), Span(max)));
        }
        if run.max_hold == Some(Duration::ZERO) {
            return Err("--max-hold 0 leaves no time for the command".to_owned());
        }
        Ok(Self {
            mode,
            command,
            wait: run.patience.limit(),
            nested_ok: run.patience.nested.nested_ok,
            ttl,
            label: run.lease.label,
            hold_for: run.hold_for.unwrap_or_default(),
            rules: Rules { grace, max_hold: run.max_hold, on_lost: run.on_lost },
            conflict_exit_code: run.conflict_exit_code,
            slots: run.slots,
            once,
            pass_url: run.pass_url,
            metrics: run.metrics_file,
            ..locks
        })
    }

    /// The plan of `acquire`, which runs no command.
    pub(crate) fn of_acquire(acquire: &Acquire) -> Result<Self, String> {
        let alone = acquire.slots.is_some() || acquire.mode.permits.is_some();
        let locks = of_locks(acquire.key.as_deref(), &acquire.more_keys, &acquire.tree, alone)?;
        let mode = mode(acquire.mode, acquire.slots.map(|_| "--slots"), &locks.keys)?;
        if acquire.max_hold == Some(Duration::ZERO) {
            return Err("--max-hold 0 leaves no time for the process".to_owned());
        }
        let on_lost = acquire.on_lost.unwrap_or(OnLost::Warn);
        Ok(Self {
            mode,
            wait: acquire.patience.limit(),
            nested_ok: acquire.patience.nested.nested_ok,
            ttl: acquire.ttl,
            label: acquire.label.clone(),
            rules: Rules { grace: grace(acquire.ttl, None)?, max_hold: acquire.max_hold, on_lost },
            slots: acquire.slots,
            end_group: acquire.end_group,
            ..locks
        })
    }

    /// The plan of `elect`: it holds the lock of the same name, with the published value as its label.
    pub(crate) fn of_election(elect: Elect) -> Result<Self, String> {
        if elect.command.is_empty() {
            return Err(format!(
                "no command to run as the leader of {name}: fencelock elect {name} -- COMMAND [ARGUMENT]..., or \
                 --observe to see who leads",
                name = elect.name
            ));
        }
        Ok(Self {
            keys: vec![elect.name],
            command: elect.command,
            wait: elect.patience.limit(),
            nested_ok: elect.patience.nested.nested_ok,
            ttl: elect.ttl,
            label: elect.value,
            rules: Rules { grace: grace(elect.ttl, elect.grace)?, ..Rules::default() },
            pass_url: elect.pass_url,
            metrics: elect.metrics_file,
            campaigns: true,
            ..Self::default()
        })
    }
}

/// The grace period: as given, or the default.
fn grace(ttl: Duration, given: Option<Duration>) -> Result<Duration, String> {
    let grace = given.unwrap_or_else(|| (ttl / DEFAULT_GRACE_SHARE).min(LONGEST_DEFAULT_GRACE));
    if grace > ttl / 2 {
        return Err(format!(
            "--grace {} is more than half of --ttl {}: the command would be terminated before a renewal \
             could complete; use a longer TTL or a shorter grace",
            Span(grace),
            Span(ttl)
        ));
    }
    Ok(grace)
}

/// A plan of these keys, or of the path. A variable of the shell that is not set is the usual reason for an empty key. `alone` is whether an
/// option is given that is for one key.
fn of_locks(first: Option<&str>, more: &[String], path: &PathArguments, alone: bool) -> Result<Plan, String> {
    if let Some((tree, is_wider)) = path.find()? {
        if alone || !more.is_empty() {
            return Err(
                "--path is no KEY: leave --also, --permits, --slots, --once-per and --min-interval out".to_owned()
            );
        }
        return Ok(Plan { keys: vec![tree.as_str().to_owned()], tree: Some(tree), is_wider, ..Plan::default() });
    }
    let keys: Vec<_> = first.into_iter().chain(more.iter().map(String::as_str)).map(str::to_owned).collect();
    if let Some(empty) = keys.iter().position(String::is_empty) {
        return Err(format!("KEY {} of {} is empty: is a variable of the shell not set?", empty + 1, keys.len()));
    }
    KeySet::new(&keys).map_err(|invalid| invalid.to_string())?;
    Ok(Plan { keys, ..Plan::default() })
}

/// The mode of these locks; if this `option` is given, it is for one key, and for an exclusive lock.
fn mode(arguments: ModeArguments, option: Option<&str>, keys: &[String]) -> Result<Mode, String> {
    if let Some(option) = option.filter(|_| keys.len() > 1) {
        return Err(format!("{option} is for one KEY, and there are {}", keys.len()));
    }
    let mode = arguments.mode(keys.len())?;
    let Some(option) = option.filter(|_| mode != Mode::Exclusive) else { return Ok(mode) };
    let of_mode = if mode == Mode::Shared { "-s" } else { "--permits" };
    Err(format!("{option} uses exclusive locks: leave {of_mode} out"))
}

/// The command to run. Refuses options that only flock(1) supports.
fn command(run: &Run) -> Result<Vec<OsString>, String> {
    let refused = if run.flock.unlock {
        Some("-u: `run` releases the lock when the command exits; use `fencelock release` for a lock of `acquire`")
    } else {
        let why = "-F: the command always runs in a separate process, so that the lock can be renewed";
        run.flock.no_fork.then_some(why)
    };
    refused.map_or(Ok(()), |why| Err(why.to_owned()))?;
    if let Some(line) = &run.flock.line {
        let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
        return Ok(vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), line.clone()]);
    }
    if !run.command.is_empty() {
        return Ok(run.command.clone());
    }
    let key = run.key.clone().or_else(|| Some(run.tree.path.as_ref()?.display().to_string())).unwrap_or_default();
    let keys = [std::slice::from_ref(&key), &run.more_keys].concat().join(", ");
    let descriptor = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
    let also = if descriptor { "; locking a file descriptor, as in `flock 9`, is not supported" } else { "" };
    Err(format!("no command to run under {keys}: fencelock run KEY -- COMMAND [ARGUMENT]...{also}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Command;
    use crate::kill_policy::KillPolicy;
    use crate::parse::parse_from;
    use fencelock::contract::{Due, Lease};
    use fencelock::{Drift, Moment, Ttl};

    fn plan(arguments: &str) -> Result<Plan, String> {
        let words: Vec<_> = arguments.split(' ').map(OsString::from).collect();
        let arguments = parse_from(&words, None).map_err(|error| error.to_string())?;
        let Command::Run(run) = arguments.command else { panic!("run") };
        Plan::new(run)
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn the_default_grace_is_a_sixth_of_the_ttl_and_at_most_ten_seconds() {
        assert_eq!(plan("fencelock run --ttl 3s k c").unwrap().rules.grace, Duration::from_millis(500));
        assert_eq!(plan("fencelock run --ttl 10m k c").unwrap().rules.grace, secs(10));
    }

    /// Whether the command survives an outage of `length` that starts at `begin`. The first `quick` renewals in that time
    /// fail immediately, the others time out.
    fn survives(rules: Rules, ttl: Duration, begin: Duration, length: Duration, quick: u32) -> bool {
        let (start, drift, ttl) = (Moment::from_micros(1000), Drift::default(), Ttl::new(ttl).unwrap());
        let (begin, end) = (start + begin, start + begin + length);
        let lease = Lease::granted(start, ttl.get(), drift);
        let mut plan = RenewalPlan::new(lease, ttl, start + ttl.get() / 3, Moment::NEVER);
        let mut kill_policy = KillPolicy::new(rules);
        let (mut now, mut failed) = (start, 0);
        loop {
            if kill_policy.tick(now.since(start), plan.rest(now)).is_some() {
                return false;
            }
            match plan.due(now) {
                Due::At(next) => now = next,
                Due::Renew if begin <= now && now < end => {
                    failed += 1;
                    now = if failed > quick { now + RenewalPlan::answer_limit(ttl.get()) } else { now };
                    plan.failed(now, 0);
                }
                Due::Renew if now >= end => return true,
                Due::Renew => plan.renewed(now, drift, now, 0).unwrap(),
                Due::Lapsed | Due::MaxHold => return false,
            }
        }
    }

    #[test]
    fn a_command_starts_with_time_for_the_answer_to_a_renewal() {
        for run in ["--ttl 10s", "--ttl 30s", "--ttl 1s --grace 500ms", "--ttl 1h"] {
            let plan = plan(&format!("fencelock run {run} k c")).unwrap();
            let ended = KillPolicy::new(plan.rules).next_wakeup(Duration::ZERO, plan.least_lease()).unwrap();
            assert!(ended >= RenewalPlan::answer_limit(plan.ttl), "{run}: {ended:?}");
            assert!(plan.least_lease() < plan.ttl / 4 * 3, "{run}: a claim or a renewal gives that much");
        }
    }

    #[test]
    fn an_outage_of_a_quarter_of_the_ttl_never_terminates_the_command() {
        for ms in [10, 12, 20, 50, 100, 300, 1000, 3000, 10_000, 30_000, 60_000, 600_000, 86_400_000] {
            let ttl = Duration::from_millis(ms);
            let rules = plan(&format!("fencelock run --ttl {ms}ms k c")).unwrap().rules;
            let ends = |length: Duration| {
                let phases = (0..=60).map(|part| ttl / 90 * part).chain([ttl / 3, ttl / 3 * 2]);
                let mut cases = phases.flat_map(|begin| (0..50).map(move |quick| (begin, quick)));
                cases.find(|(begin, quick)| !survives(rules, ttl, *begin, length, *quick))
            };
            assert_eq!(ends((ttl / 4).saturating_sub(Duration::from_millis(3))), None, "{ttl:?}");
            // An outage of half the TTL terminates the command, except where grace and timeouts are negligible.
            assert!(ms > 30_000 || ends(ttl / 2).is_some(), "{ttl:?}");
        }
    }
}
