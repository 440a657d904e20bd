use crate::args::{OnLost, Run};
use crate::commands::elect::args::Elect;
use crate::commands::once::args::OnceWindow;
use crate::mode::ModeArguments;
use fencelock::contract::KeySet;
use fencelock::{Mode, Span};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The plan of `run` and `elect`: validated arguments with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// In the order in which they were given.
    pub(crate) keys: Vec<String>,
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
    pub(crate) once: Option<OnceRule>,
    /// Pass the password to the command.
    pub(crate) pass_url: bool,
    /// Where to write what became of it.
    #[serde(skip)]
    pub(crate) metrics: Option<PathBuf>,
}

/// At most one success, or one start, in each window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OnceRule {
    pub(crate) window: OnceWindow,
    pub(crate) even_if_failed: bool,
}

/// When to terminate the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
///
/// [`RenewalPlan`]: fencelock::contract::RenewalPlan
const DEFAULT_GRACE_SHARE: u32 = 6;

impl Plan {
    /// The error names the options that contradict each other.
    pub(crate) fn new(run: Run) -> Result<Self, String> {
        let command = command(&run)?;
        let keys = keys(&run.key, &run.more_keys)?;
        let once = once(&run, &keys)?;
        let mode = mode(run.mode, run.slots, &keys)?;
        if mode != Mode::Exclusive && (run.slots.is_some() || once.is_some()) {
            let of_mode = if mode == Mode::Shared { "-s" } else { "--permits" };
            let option = once.map_or("--slots", |once| once.window.option());
            return Err(format!("{option} uses exclusive locks: leave {of_mode} out"));
        }
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
            keys,
            mode,
            command,
            wait: run.patience.limit(),
            nested_ok: run.nested.nested_ok,
            ttl,
            label: run.lease.label,
            hold_for: run.hold_for.unwrap_or_default(),
            rules: Rules { grace, max_hold: run.max_hold, on_lost: run.on_lost },
            conflict_exit_code: run.conflict_exit_code,
            slots: run.slots,
            once,
            pass_url: run.pass_url,
            metrics: run.metrics_file,
        })
    }

    /// The plan of `acquire --while-pid`, which runs no command.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_keeper(acquire: &crate::args::Acquire, label: &str) -> Result<Self, String> {
        let keys = keys(&acquire.key, &acquire.more_keys)?;
        let mode = mode(acquire.mode, acquire.slots, &keys)?;
        if mode != Mode::Exclusive && acquire.slots.is_some() {
            return Err("--slots uses exclusive locks: leave -s and --permits out".to_owned());
        }
        if acquire.max_hold == Some(Duration::ZERO) {
            return Err("--max-hold 0 leaves no time for the process".to_owned());
        }
        let on_lost = acquire.on_lost.unwrap_or(OnLost::Warn);
        let rules = Rules { grace: grace(acquire.ttl, None)?, max_hold: acquire.max_hold, on_lost };
        Ok(Self {
            keys,
            mode,
            command: Vec::new(),
            wait: acquire.patience.limit(),
            nested_ok: acquire.nested.nested_ok,
            ttl: acquire.ttl,
            label: Some(label.to_owned()),
            hold_for: Duration::ZERO,
            rules,
            conflict_exit_code: None,
            slots: acquire.slots,
            once: None,
            pass_url: false,
            metrics: None,
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
        let rules = Rules { grace: grace(elect.ttl, elect.grace)?, max_hold: None, on_lost: OnLost::Term };
        Ok(Self {
            keys: vec![elect.name],
            mode: Mode::Exclusive,
            command: elect.command,
            wait: elect.patience.limit(),
            nested_ok: elect.nested.nested_ok,
            ttl: elect.ttl,
            label: elect.value,
            hold_for: Duration::ZERO,
            rules,
            conflict_exit_code: None,
            slots: None,
            once: None,
            pass_url: elect.pass_url,
            metrics: elect.metrics_file,
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

/// The keys to lock. A variable of the shell that is not set is the usual reason for an empty one.
fn keys(first: &String, more: &[String]) -> Result<Vec<String>, String> {
    let keys: Vec<_> = std::iter::once(first).chain(more).cloned().collect();
    if let Some(empty) = keys.iter().position(String::is_empty) {
        return Err(format!("KEY {} of {} is empty: is a variable of the shell not set?", empty + 1, keys.len()));
    }
    KeySet::new(&keys).map_err(|invalid| invalid.to_string())?;
    Ok(keys)
}

/// The mode of these locks, of which one has slots if there are any.
fn mode(arguments: ModeArguments, slots: Option<u32>, keys: &[String]) -> Result<Mode, String> {
    if slots.is_some() && keys.len() > 1 {
        return Err(format!("--slots is for one KEY, and there are {}", keys.len()));
    }
    arguments.mode(keys.len())
}

/// The rule of `--once-per` or `--min-interval`, for one key.
fn once(run: &Run, keys: &[String]) -> Result<Option<OnceRule>, String> {
    let window = run.once.window;
    if !window.check()? {
        return Ok(None);
    }
    if keys.len() > 1 {
        return Err(format!("{} is for one KEY, and there are {}", window.option(), keys.len()));
    }
    Ok(Some(OnceRule { window, even_if_failed: run.once.even_if_failed }))
}

/// The command to run. Refuses options that only flock(1) supports.
fn command(run: &Run) -> Result<Vec<OsString>, String> {
    let refused = [
        (
            run.flock.unlock,
            "-u: `run` releases the lock when the command exits; use `fencelock release` for a lock of `acquire`",
        ),
        (run.flock.no_fork, "-F: the command always runs in a separate process, so that the lock can be renewed"),
    ];
    if let Some((_, why)) = refused.iter().find(|(given, _)| *given) {
        return Err((*why).to_owned());
    }
    if let Some(line) = &run.flock.line {
        let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
        return Ok(vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), line.clone()]);
    }
    if !run.command.is_empty() {
        return Ok(run.command.clone());
    }
    let keys = [std::slice::from_ref(&run.key), &run.more_keys].concat().join(", ");
    let descriptor = !run.key.is_empty() && run.key.bytes().all(|byte| byte.is_ascii_digit());
    let also = if descriptor { "; locking a file descriptor, as in `flock 9`, is not supported" } else { "" };
    Err(format!("no command to run under {keys}: fencelock run KEY -- COMMAND [ARGUMENT]...{also}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Command;
    use crate::kill_policy::KillPolicy;
    use crate::parse::parse_from;
    use fencelock::contract::{Due, Lease, RenewalPlan};
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

    #[test]
    fn a_grace_that_leaves_no_time_for_renewals_is_refused() {
        for grace in ["6s", "10s", "11s"] {
            let error = plan(&format!("fencelock run --ttl 10s --grace {grace} k c")).unwrap_err();
            assert!(error.contains("--grace") && error.contains("--ttl 10 s"), "{error}");
        }
        assert!(plan("fencelock run --ttl 10s --grace 5s k c").is_ok());
    }

    #[test]
    fn hold_for_cannot_exceed_max_hold() {
        assert!(plan("fencelock run --hold-for 3s --max-hold 2s k c").is_err());
        assert!(plan("fencelock run --hold-for 2s --max-hold 2s k c").is_ok());
        assert!(plan("fencelock run --max-hold 0 k c").is_err());
    }

    #[test]
    fn a_window_is_for_one_key_and_within_bounds() {
        let once = plan("fencelock run --once-per 1h k c").unwrap().once;
        assert_eq!(
            once,
            Some(OnceRule {
                window: OnceWindow { once_per: Some(secs(3600)), ..OnceWindow::default() },
                even_if_failed: false
            })
        );
        assert!(plan("fencelock run --even-if-failed --once-per 1d k c").unwrap().once.unwrap().even_if_failed);
        for window in ["0", "999ms", "401d"] {
            let error = plan(&format!("fencelock run --once-per {window} k c")).unwrap_err();
            assert!(error.starts_with("--once-per: a window lasts 1 s to 400 days; "), "{error}");
        }
        let refused = |line: &str| plan(line).unwrap_err();
        let long = refused("fencelock run --once-per 1h --offset 1h k c");
        assert_eq!(long, "--offset: an offset is shorter than its window of 1 h; 1 h is not");
        assert!(refused("fencelock run --min-interval 0 k c").starts_with("--min-interval: a window lasts"));
        for line in [
            "--offset 1h",
            "--min-interval 2h --offset 1h",
            "--min-interval 2h --once-per 1h",
            "--slots 2 --min-interval 1h",
        ] {
            plan(&format!("fencelock run {line} k c")).unwrap_err();
        }
        let interval = plan("fencelock run --min-interval 20h --even-if-failed k c").unwrap().once.unwrap();
        assert!(interval.even_if_failed && interval.window.min_interval == Some(secs(72_000)));
        assert!(plan("fencelock run --once-per 1h a --also b -- c").unwrap_err().contains("one KEY, and there are 2"));
        assert!(
            plan("fencelock run --even-if-failed k c").is_err() && plan("fencelock run k c").unwrap().once.is_none()
        );
    }

    #[test]
    fn no_wait_is_a_wait_of_zero() {
        assert_eq!(plan("fencelock run -n k c").unwrap().wait, Some(Duration::ZERO));
        assert_eq!(plan("fencelock run -w 0.5 k c").unwrap().wait, Some(Duration::from_millis(500)));
        assert_eq!(plan("fencelock run k c").unwrap().wait, None);
        assert!(plan("fencelock run -n -w 1 k c").is_err());
    }

    #[test]
    fn everything_after_the_command_belongs_to_the_command() {
        for (line, rest) in [("run k --", " -- y"), ("run -q k --", " -- y"), ("run k", " y")] {
            let plan = plan(&format!("fencelock {line} c -n --url x{rest}")).unwrap();
            assert_eq!(plan.keys, ["k"]);
            assert_eq!(plan.command.join(" ".as_ref()), *format!("c -n --url x{rest}"), "{line}");
            assert_eq!(plan.wait, None);
        }
    }

    #[test]
    fn keys_that_cannot_be_locked_together_are_refused() {
        assert_eq!(plan("fencelock run a --also b -- c").unwrap().keys, ["a", "b"]);
        assert_eq!(
            plan("fencelock run a --also= --also b -- c").unwrap_err(),
            "KEY 2 of 3 is empty: is a variable of the shell not set?"
        );
        assert!(plan("fencelock run a --also b --also a -- c").unwrap_err().starts_with("\"a\" is named twice"));
        let seventeen: Vec<_> = (0..16).map(|number| format!(" --also {number}")).collect();
        assert!(plan(&format!("fencelock run k{} -- c", seventeen.concat())).unwrap_err().starts_with("more than 16"));
        assert!(plan("fencelock run a --also b --").unwrap_err().starts_with("no command to run under a, b: "));
    }

    #[test]
    fn the_mode_is_exclusive_unless_an_option_says_otherwise() {
        assert_eq!(plan("fencelock run k c").unwrap().mode, Mode::Exclusive);
        assert_eq!(plan("fencelock run -s a --also b -- c").unwrap().mode, Mode::Shared);
        assert_eq!(plan("fencelock run --permits 3 k c").unwrap().mode, Mode::permits(1, 3).unwrap());
        assert_eq!(plan("fencelock run k --permits 3 --weight 2 c").unwrap().mode, Mode::permits(2, 3).unwrap());
    }

    #[test]
    fn options_of_two_modes_are_refused() {
        for options in [
            "-s --permits 3",
            "-s -x",
            "-x --permits 3",
            "--weight 2",
            "--permits 0",
            "--permits 1000001",
            "--permits 3 --weight 0",
            "--permits 3 --weight 4",
            "--permits -1",
            "--permits ",
            "--permits three",
        ] {
            assert!(plan(&format!("fencelock run {options} k c")).is_err(), "{options}");
        }
        assert_eq!(
            plan("fencelock run --permits 3 a --also b -- c").unwrap_err(),
            "--permits applies to one KEY, not to 2"
        );
    }

    #[test]
    fn options_are_accepted_between_key_and_command() {
        let plan = plan("fencelock run k -n c -n").unwrap();
        assert_eq!((plan.wait, plan.command), (Some(Duration::ZERO), vec!["c".into(), "-n".into()]));
    }

    #[test]
    fn an_unknown_option_is_not_parsed_as_a_command() {
        assert!(plan("fencelock run k -z c").is_err());
        assert_eq!(plan("fencelock run k -- -z").unwrap().command, ["-z"]);
    }
}
