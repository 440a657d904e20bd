use crate::args::{OnLost, Run};
use std::ffi::OsString;
use std::time::Duration;

/// What `run` is going to do: the arguments, checked against each other and completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) key: String,
    pub(crate) command: Vec<OsString>,
    /// `None` if there is no limit.
    pub(crate) wait: Option<Duration>,
    pub(crate) nested_ok: bool,
    pub(crate) ttl: Duration,
    pub(crate) label: Option<String>,
    pub(crate) hold_for: Duration,
    pub(crate) rules: Rules,
    pub(crate) conflict_exit_code: Option<u8>,
}

/// When the command has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Time between TERM and KILL.
    pub(crate) grace: Duration,
    /// The longest hold.
    pub(crate) max_hold: Option<Duration>,
    /// What a lost lock means.
    pub(crate) on_lost: OnLost,
}

/// A default of seconds suits programs that clean up; a third of the TTL leaves a third for renewals that fail.
const LONGEST_DEFAULT_GRACE: Duration = Duration::from_secs(10);

impl Plan {
    /// The words of the error name the options that contradict each other.
    pub(crate) fn new(run: Run) -> Result<Self, String> {
        let ttl = run.lease.ttl;
        let grace = run.grace.unwrap_or_else(|| (ttl / 3).min(LONGEST_DEFAULT_GRACE));
        if grace > ttl / 2 {
            return Err(format!(
                "--grace {grace:?} is more than half of --ttl {ttl:?}: the command would be ended before a renewal \
                 had its chance; choose a longer TTL or a shorter grace"
            ));
        }
        if let (Some(max), Some(least)) = (run.max_hold, run.hold_for)
            && least > max
        {
            return Err(format!("--hold-for {least:?} is longer than --max-hold {max:?}"));
        }
        if run.max_hold == Some(Duration::ZERO) {
            return Err("--max-hold 0 leaves no time for the command".to_owned());
        }
        Ok(Self {
            key: run.key,
            command: run.command,
            wait: run.patience.limit(),
            nested_ok: run.nested.nested_ok,
            ttl,
            label: run.lease.label,
            hold_for: run.hold_for.unwrap_or_default(),
            rules: Rules { grace, max_hold: run.max_hold, on_lost: run.on_lost },
            conflict_exit_code: run.conflict_exit_code,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use clap::Parser;

    fn plan(arguments: &str) -> Result<Plan, String> {
        let arguments = Arguments::try_parse_from(arguments.split(' ')).map_err(|error| error.to_string())?;
        let Command::Run(run) = arguments.command else { panic!("run") };
        Plan::new(run)
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn the_default_grace_is_a_third_of_the_ttl_and_at_most_ten_seconds() {
        assert_eq!(plan("fencelock run --ttl 3s k c").unwrap().rules.grace, secs(1));
        assert_eq!(plan("fencelock run --ttl 10m k c").unwrap().rules.grace, secs(10));
    }

    #[test]
    fn a_grace_that_leaves_no_time_for_renewals_is_refused() {
        for grace in ["6s", "10s", "11s"] {
            let error = plan(&format!("fencelock run --ttl 10s --grace {grace} k c")).unwrap_err();
            assert!(error.contains("--grace") && error.contains("--ttl 10s"), "{error}");
        }
        assert!(plan("fencelock run --ttl 10s --grace 5s k c").is_ok());
    }

    #[test]
    fn the_least_hold_cannot_be_longer_than_the_longest() {
        assert!(plan("fencelock run --hold-for 3s --max-hold 2s k c").is_err());
        assert!(plan("fencelock run --hold-for 2s --max-hold 2s k c").is_ok());
        assert!(plan("fencelock run --max-hold 0 k c").is_err());
    }

    #[test]
    fn not_waiting_is_waiting_for_no_time() {
        assert_eq!(plan("fencelock run -n k c").unwrap().wait, Some(Duration::ZERO));
        assert_eq!(plan("fencelock run -w 0.5 k c").unwrap().wait, Some(Duration::from_millis(500)));
        assert_eq!(plan("fencelock run k c").unwrap().wait, None);
        assert!(plan("fencelock run -n -w 1 k c").is_err());
    }

    #[test]
    fn everything_after_the_command_is_the_commands() {
        for line in ["run k -- c -n --url x -- y", "run k c -n --url x -- y", "run -q k -- c -n --url x -- y"] {
            let plan = plan(&format!("fencelock {line}")).unwrap();
            assert_eq!(plan.key, "k");
            assert_eq!(plan.command, ["c", "-n", "--url", "x", "--", "y"], "{line}");
            assert_eq!(plan.wait, None);
        }
    }

    #[test]
    fn our_options_may_stand_between_key_and_command() {
        let plan = plan("fencelock run k -n c -n").unwrap();
        assert_eq!((plan.wait, plan.command), (Some(Duration::ZERO), vec!["c".into(), "-n".into()]));
    }

    #[test]
    fn an_unknown_option_is_not_taken_for_a_command() {
        assert!(plan("fencelock run k -z c").is_err());
        assert_eq!(plan("fencelock run k -- -z").unwrap().command, ["-z"]);
    }
}
