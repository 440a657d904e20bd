#![allow(clippy::doc_markdown, reason = "this is help text")]

use crate::commands::elect::args::Elect;
use crate::commands::once::args::{Once, OncePer};
#[cfg(feature = "top")]
use crate::commands::top::args::Top;
use crate::mode::ModeArguments;
use crate::paths::PathArguments;
use crate::serve::args::Serve;
use crate::values::{Nested, Patience};
use crate::{exit, notes, settings, values};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Run commands one at a time, on one machine or on fifty.
///
/// A lock has a name, the KEY, and is stored in a backend, the URL. Only one client holds a lock at a time, until it
/// releases the lock or the lease ends. Each grant has a fencing token that is greater than all earlier ones.
#[derive(Debug, Parser)]
#[command(name = "fencelock", version, max_term_width = 100, after_help = notes::backends())]
#[command(after_long_help = notes::all())]
#[command(subcommand_value_name = "COMMAND", subcommand_help_heading = "Commands")]
#[command(subcommand_required = true, arg_required_else_help = false, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command accepts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Common {
    /// URL of the backend [default: url in fencelock.toml, or a directory of the current user].
    ///
    /// If the URL has no password, it is read from the variable FENCELOCK_PASSWORD or from password_file=FILE in the URL.
    // The variable may contain a password, so the help must not show its value.
    #[arg(long, global = true, env = "FENCELOCK_URL", hide_env_values = true, value_hint = ValueHint::Url)]
    pub(crate) url: Option<String>,
    /// Print errors only, and with --json the result.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print debug messages; twice prints trace messages.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with_all = ["quiet", "json"])]
    pub(crate) verbose: u8,
    /// Write JSON: results to stdout, events of `run` to stderr.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Elect(Elect),
    Acquire(Acquire),
    Serve(Serve),
    Renew(Renew),
    Release(Release),
    Status(Status),
    List(List),
    #[cfg(feature = "top")]
    Top(Top),
    Wait(Wait),
    Break(Break),
    Resize(Resize),
    Once(Once),
    Init(Init),
    /// Show the settings in force, and where they come from: options, variables, ~/.config/fencelock.toml, /etc/fencelock.toml.
    ///
    /// It contacts no server, and shows no password.
    #[command(after_help = exit::OTHERS)]
    Config,
    /// Check the configuration and health of the backend, and try a lock.
    #[command(after_help = exit::DOCTOR)]
    Doctor {
        /// Write a report about the backend as one JSON document, without passwords: its servers and their features, the options in
        /// effect, and all findings
        #[arg(long)]
        report: bool,
        /// Write nothing, so no lock is tried
        #[arg(long)]
        read_only: bool,
        /// Try a lock with this key, which no program uses. By default its name begins with fencelock-doctor-; a user of a server
        /// who may not use that key names another one
        #[arg(long, value_name = "KEY", conflicts_with = "read_only")]
        key: Option<String>,
    },
    /// Write a completion script for a shell.
    ///
    /// In ~/.bashrc: source <(fencelock completions bash). For zsh, write it to a file _fencelock in a directory of $fpath; for fish,
    /// to ~/.config/fish/completions/fencelock.fish. It offers commands, options, and the keys that are held.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write a manual page, for `man -l -`.
    Man {
        /// Print the page of one command, such as `run` [default: the page of the whole program].
        command: Option<String>,
    },
    /// Show the help of the program or of a command.
    Help {
        /// The command, such as `run`.
        command: Vec<String>,
    },
    /// Show the version.
    Version,
}

impl Command {
    /// Whether this command acquires locks. The other commands create nothing on a backend.
    pub(crate) fn acquires(&self) -> bool {
        match self {
            Self::Run(_) | Self::Acquire(_) | Self::Serve(_) => true,
            Self::Elect(elect) => !elect.observe,
            _ => false,
        }
    }

    /// Whether it draws on the whole terminal, which nothing else may write to.
    pub(crate) fn has_screen(&self) -> bool {
        match self {
            #[cfg(feature = "top")]
            Self::Top(wanted) => !wanted.once,
            _ => false,
        }
    }
}

/// Hold one or more KEYs while a command runs.
///
/// The first word is the KEY, and --also names others. With several keys, at most 16, the command starts when all of them are held.
/// Commands that lock the same keys never deadlock, regardless of the order of the keys. If one lock is lost, all are treated as
/// lost. A word between the KEY and `--` is refused: it may be meant as a key, or as the beginning of the command.
///
/// The command is started directly, without a shell, after the lock is acquired. It runs in its own process group. It
/// inherits the standard streams and the terminal, receives signals, and does not outlive this program. The lock is
/// renewed while the command runs. If renewal fails, the command is terminated before another client can get the lock.
///
/// On Linux, all descendants of the command are terminated with it: when the lock is lost, when --max-hold is reached,
/// after a termination signal, and when this program is killed, also with kill -9. This includes processes in other
/// sessions and process groups, and processes whose parent has exited. It excludes processes that a service starts on
/// behalf of the command (systemd-run, at, docker). Processes of another user cannot be killed and are reported. If the
/// command exits by itself, processes that it leaves behind keep running without the lock.
///
/// TERM, INT, HUP, QUIT, USR1 and USR2 are forwarded to the process group of the command. A second INT or TERM kills all
/// descendants; the same signal within a second counts as the first. Descendants outside of the group receive TERM when the
/// command has exited, or after half of the grace period. Before the lock is acquired, TERM, INT, HUP and QUIT end the wait, and the command is not started.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::RUN, override_usage = "fencelock run [OPTIONS] KEY [--also KEY]... -- COMMAND [ARGUMENT]...")]
pub(crate) struct Run {
    /// Name of the lock.
    #[arg(value_parser = values::key, required_unless_present = "path")]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) tree: PathArguments,
    /// Name of another lock to hold at the same time; repeat it for more.
    #[arg(long = "also", value_name = "KEY")]
    pub(crate) more_keys: Vec<String>,
    /// The command and its arguments. They are never parsed as options of fencelock.
    ///
    /// The environment of the command contains the key in FENCELOCK_KEY, the backend in FENCELOCK_BACKEND, the holder ID in
    /// FENCELOCK_HOLDER, the fencing token in FENCELOCK_FENCE, and the mode in FENCELOCK_MODE: exclusive, shared or permits, these
    /// with FENCELOCK_WEIGHT and FENCELOCK_PERMITS. FENCELOCK_OUTER lists the locks that this program
    /// itself runs under. FENCELOCK_KEYS, FENCELOCK_HOLDERS and FENCELOCK_FENCES have one line for each key: KEY, then
    /// those of --also in the given order; with several keys, the variables for a single key are not set.
    #[arg(trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// Pass FENCELOCK_PASSWORD, and a FENCELOCK_URL that contains a password, to the command [default: both are removed].
    #[arg(long, help_heading = None)]
    pub(crate) pass_url: bool,
    /// Exit with CODE instead of 75 if another client holds the lock.
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Write when the command started and ended last, how, and how long it waited, into a file in DIR for the textfile collector of
    /// node_exporter: one for each KEY.
    ///
    /// What cannot be written is a warning, and does not change the exit status.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = None)]
    pub(crate) metrics_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flock: Flock,
    #[command(flatten)]
    pub(crate) mode: ModeArguments,
    #[command(flatten)]
    pub(crate) lease: LeaseArguments,
    /// Hold one of N numbered slots, 1 to 1000, so that at most N commands run at the same time.
    ///
    /// Slot I is the lock KEY#I. Its number, from 0, is in FENCELOCK_SLOT, and its token in FENCELOCK_FENCE. All callers must
    /// use the same N.
    #[arg(long, value_name = "N", conflicts_with_all = ["once_per", "min_interval"])]
    pub(crate) slots: Option<u32>,
    #[command(flatten)]
    pub(crate) once: OncePer,
    /// Hold the lock for at least this long, even if the command exits earlier; a signal ends this.
    #[arg(long, value_name = "DURATION", value_parser = values::span, help_heading = "Holding")]
    pub(crate) hold_for: Option<Duration>,
    /// Terminate the command after this long (exit 76).
    #[arg(long, value_name = "DURATION", value_parser = values::span, help_heading = "Holding")]
    pub(crate) max_hold: Option<Duration>,
    /// Grace period between TERM and KILL, before the lease ends [default: a sixth of the TTL, at most 10s]
    #[arg(long, value_name = "DURATION", value_parser = values::span, help_heading = "Holding")]
    pub(crate) grace: Option<Duration>,
    /// What to do when the lock is lost: terminate the command, or only print a warning.
    #[arg(long, value_enum, default_value_t = OnLost::Term, value_name = "WHAT", help_heading = "Holding")]
    pub(crate) on_lost: OnLost,
}

/// Options of flock(1), so that `alias flock='fencelock run'` works, or fails with a reason.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of flock(1)")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Flock {
    /// Run LINE with $SHELL, or with sh if it is not set.
    #[arg(short = 'c', long = "command", value_name = "LINE", conflicts_with = "command")]
    pub(crate) line: Option<OsString>,
    /// No effect: a lock is exclusive unless --shared or --permits is given.
    #[arg(short = 'x', short_alias = 'e', long, conflicts_with_all = ["shared", "permits"])]
    pub(crate) exclusive: bool,
    /// No effect: the command never inherits the lock.
    #[arg(short = 'o', long)]
    pub(crate) close: bool,
    #[arg(short = 'u', long, hide = true)]
    pub(crate) unlock: bool,
    #[arg(short = 'F', long, hide = true)]
    pub(crate) no_fork: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum OnLost {
    /// Send TERM before the lease ends, then KILL.
    #[default]
    Term,
    /// Print a warning; the command continues and may overlap the next holder.
    Warn,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Holding")]
pub(crate) struct LeaseArguments {
    /// Time to live of the lease, renewed after each third; a lock of a crashed holder ends after this time.
    #[arg(long, value_name = "DURATION", value_parser = values::span, default_value = settings::TTL)]
    pub(crate) ttl: Duration,
    /// Description of the holder, shown to waiters.
    #[arg(long, value_name = "TEXT", value_parser = values::label())]
    pub(crate) label: Option<String>,
}

/// Acquire KEY and keep it after this program exits, for scripts, hooks and sessions.
///
/// Prints the holder ID, 32 hexadecimal digits, which `renew` and `release` require.
///
/// With --while-pid, the lock is held and renewed until that process ends, or until `release`, `break` or --max-hold. A small process
/// in the background keeps all locks of a process, on every backend. In a shell, use --while-pid $$; in a hook, $PPID is the program
/// that called it. Every script of a session may ask for its lock: if the process has it already, the answer is the same. If one
/// process serves several sessions, as a CI runner or an agent with sub-agents does, each gives its --owner.
///
/// Without --while-pid, the lease is not renewed: choose a TTL longer than the work, or renew in time. File locks end with their
/// process, so they need --while-pid.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS, mut_arg("path", |path| path.requires("while_pid")))]
pub(crate) struct Acquire {
    /// Name of the lock.
    #[arg(value_parser = values::key, required_unless_present = "path", conflicts_with = "path")]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) tree: PathArguments,
    /// Name of another lock to hold at the same time; repeat it for more. The output has a line for each, and the release of one
    /// releases all.
    #[arg(long = "also", value_name = "KEY", requires = "while_pid")]
    pub(crate) more_keys: Vec<String>,
    #[command(flatten)]
    pub(crate) mode: ModeArguments,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// Keep the lock until this process ends; it must belong to this user.
    #[arg(long, value_name = "PID", help_heading = "Holding", value_parser = values::process)]
    pub(crate) while_pid: Option<u32>,
    /// Whose lock it is among those of the process, such as $CI_JOB_ID: another NAME is another owner, and waits. 1 to 64 bytes
    /// without spaces [default: none]
    #[arg(long, value_name = "NAME", requires = "while_pid", value_parser = values::owner, help_heading = "Holding")]
    pub(crate) owner: Option<String>,
    /// Hold one of N numbered slots, 1 to 1000; its number, from 0, follows the holder ID in the output.
    #[arg(long, value_name = "N", requires = "while_pid", help_heading = "Sharing")]
    pub(crate) slots: Option<u32>,
    /// Release the lock after this long, although the process lives.
    #[arg(long, value_name = "DURATION", value_parser = values::span, requires = "while_pid", help_heading = "Holding")]
    pub(crate) max_hold: Option<Duration>,
    /// What to do when the lock is lost: only write a warning to the system log, or also send TERM to the process [default: warn]
    #[arg(long, value_enum, value_name = "WHAT", requires = "while_pid", hide_possible_values = true)]
    #[arg(help_heading = "Holding")]
    pub(crate) on_lost: Option<OnLost>,
    /// When the process has ended, end what it has left in its process group and its session, TERM and then KILL, before the lock is
    /// free. It must lead one of both. Processes that have made groups and sessions of their own go on.
    #[arg(long, requires = "while_pid", help_heading = "Holding")]
    pub(crate) end_group: bool,
    /// Time to live of the lease; only `renew` extends it, or the keeper of --while-pid.
    #[arg(long, value_name = "DURATION", value_parser = values::span, default_value = settings::TTL, help_heading = "Holding")]
    pub(crate) ttl: Duration,
    /// Description of the holder, shown to waiters.
    #[arg(long, value_name = "TEXT", value_parser = values::label(), help_heading = "Holding")]
    pub(crate) label: Option<String>,
}

/// Extend the lease of KEY.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Renew {
    /// Name of the lock.
    #[arg(value_parser = values::key)]
    pub(crate) key: String,
    /// The holder ID that `acquire` printed.
    #[arg(long)]
    pub(crate) holder: String,
    /// The lease lasts at least this long from now; a renewal never shortens it.
    #[arg(long, value_name = "DURATION", value_parser = values::span, default_value = settings::TTL)]
    pub(crate) ttl: Duration,
}

/// Release KEY, or all locks of a session.
///
/// It is no error if a session has no locks.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
#[command(
    override_usage = "fencelock release KEY --holder HOLDER\n       fencelock release --all --while-pid PID [--owner NAME]\n       fencelock release --path PATH --while-pid PID [--owner NAME]"
)]
pub(crate) struct Release {
    /// Name of the lock.
    #[arg(value_parser = values::key, required_unless_present_any = ["all", "path"], conflicts_with = "path")]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) tree: PathArguments,
    /// The holder ID that `acquire` printed.
    #[arg(long, required_unless_present = "while_pid", conflicts_with = "while_pid")]
    pub(crate) holder: Option<String>,
    /// Release all locks that `acquire --while-pid` keeps for a process and an owner, on this backend.
    #[arg(long, requires = "while_pid", conflicts_with_all = ["key", "holder", "path"])]
    pub(crate) all: bool,
    /// The process for which the locks are kept.
    #[arg(long, value_name = "PID", conflicts_with = "key", value_parser = values::process)]
    pub(crate) while_pid: Option<u32>,
    /// Whose locks these are among those of the process [default: none]
    #[arg(long, value_name = "NAME", requires = "while_pid", value_parser = values::owner)]
    pub(crate) owner: Option<String>,
}

/// Show whether KEY is free (exit 0), or who holds it (exit 75).
///
/// Quarantined servers may have lost their locks: the state is then unknown (exit 69), not free.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Status {
    /// Name of the lock.
    #[arg(value_parser = values::key, required_unless_present = "path", conflicts_with = "path")]
    pub(crate) key: Option<String>,
    #[command(flatten)]
    pub(crate) tree: PathArguments,
    /// Also show the first 100 waiters, in the order in which they are served. JSON always has them.
    #[arg(long)]
    pub(crate) waiters: bool,
}

/// List all held keys, or those that begin with PREFIX.
///
/// On Redis this scans all keys of the database, including keys of other programs. It takes about one second per million
/// keys, with or without a PREFIX. The server serves other clients during the scan.
///
/// WAITED is how long the client has waited that has waited longest.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct List {
    /// List only keys that begin with this.
    #[arg(conflicts_with = "path")]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) tree: PathArguments,
}

/// Register the servers of a redlock:// URL as one set.
///
/// Run it once before the first lock, and after each change of the server list or of `max_ttl=`. Every server must answer.
/// A server that is new, or was restarted or flushed, may have lost its locks. It enters quarantine until every lease that
/// it may have granted has ended. The command is idempotent. Clients with another list or another `max_ttl=` fail
/// afterwards.
///
/// It also applies to redis:// with quarantine=on. In a database it makes the schema, or updates its functions
/// and its quarantine.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Init {
    /// Skip the quarantine: all servers are new and have lost no locks.
    ///
    /// Do not use it to replace one server of a set in use: the new server could grant locks that the old one had granted.
    #[arg(long)]
    pub(crate) trust_empty: bool,
}

/// Wait until KEY is free, without acquiring it.
///
/// Another client may acquire it immediately afterwards. To run a command exclusively, use `run`.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Wait {
    /// Name of the lock.
    #[arg(value_parser = values::key)]
    pub(crate) key: String,
    /// Wait at most this long: 5, 0.5, 90s, 2m, 1h30m [default: no limit]
    ///
    /// Without it, the wait ends when the backend has not answered for 30s.
    #[arg(short = 'w', long = "wait", value_name = "DURATION", value_parser = values::span)]
    pub(crate) limit: Option<Duration>,
    #[command(flatten)]
    pub(crate) nested: Nested,
}

/// Break a lock: release KEY on behalf of its holder.
///
/// This does not stop the holder. If it is still running, two holders overlap, unless the protected resource checks the fencing
/// token. Without --yes the command only shows which lock it would break.
///
/// If several clients hold KEY, as a shared lock or with permits, --holder selects the hold to end. The other holds continue.
///
/// It does not remove the record that the work of `run --once-per` is done: see `once --clear`.
///
/// A value that another program stored under KEY is shown by type, length and first characters. It is deleted only if an
/// option declares it to be a lock. Hashes, lists and other types are never deleted. A file lock ends only with its
/// process.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Break {
    /// Name of the lock.
    #[arg(value_parser = values::key)]
    pub(crate) key: String,
    /// End only the hold whose holder ID begins with PREFIX, as `status` shows it.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) holder: Option<String>,
    /// Break the lock.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Also break a lock of another library: a string with a TTL.
    #[arg(long)]
    pub(crate) foreign: bool,
    /// Also delete a string without a TTL, which may be data.
    #[arg(long)]
    pub(crate) foreign_without_ttl: bool,
}

/// Change the number of permits of a semaphore in use.
///
/// All holders keep their permits. With more permits, waiting commands start at once if enough permits are free. With fewer, no
/// command starts until enough permits are returned. After the change, `run --permits` with the old number is refused. Commands
/// that already wait continue to wait; with lock files, which have no queue, they are refused as well.
///
/// `status` shows the number. A semaphore that is not in use has none: the next command sets it.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Resize {
    /// Name of the semaphore.
    #[arg(value_parser = values::key)]
    pub(crate) key: String,
    /// The new number of permits.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(fencelock::Mode::MOST_PERMITS)))]
    pub(crate) permits: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn no_line_of_the_help_is_wrapped() {
        let program = Arguments::command();
        let commands = std::iter::once(&program).chain(program.get_subcommands());
        let notes = commands.flat_map(|command| [command.get_after_help(), command.get_after_long_help()]);
        for notes in notes.flatten().map(ToString::to_string) {
            for line in notes.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }
}
