use crate::commands::bench::args::Bench;
use crate::commands::lab::args::Lab;
use crate::notes;
use crate::{exit, span};
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::time::Duration;

/// Run commands one at a time, on one machine or on fifty.
///
/// A lock has a name, the KEY, and lives in a place, the URL. Whoever holds it is the only one, until it is released or
/// its lease ends; a fencing token tells each holder from all later ones.
#[derive(Debug, Parser)]
#[command(name = "fencelock", version, max_term_width = 100, after_help = notes::places())]
#[command(after_long_help = notes::all())]
#[command(subcommand_value_name = "COMMAND", subcommand_help_heading = "Commands")]
#[command(subcommand_required = true, arg_required_else_help = false, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Common {
    /// Where the lock lives; without it a directory of this user on this machine.
    ///
    /// A password that is not in the URL comes from the variable FENCELOCK_PASSWORD or from password_file=FILE in the URL.
    #[allow(clippy::doc_markdown, reason = "it is a text for people")]
    // The value of the variable may hold a password, so help must not show it.
    #[arg(long, global = true, env = "FENCELOCK_URL", hide_env_values = true, value_hint = ValueHint::Url)]
    pub(crate) url: Option<String>,
    /// Say nothing but errors.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Tell more; twice tells all.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with_all = ["quiet", "json"])]
    pub(crate) verbose: u8,
    /// Write JSON, for programs: answers on stdout, the events of `run` on stderr.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
    Status(Status),
    List(List),
    Wait(Wait),
    Break(Break),
    Init(Init),
    /// Look at everything that the locks of this place rest on.
    #[command(after_help = exit::DOCTOR)]
    Doctor,
    Lab(Lab),
    Bench(Bench),
    /// Write a completion script for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Write a manual page, for `man -l -`.
    Man {
        /// The page of one command instead of the whole program's: `run`, `lab stock`.
        command: Vec<String>,
    },
}

/// Hold KEY while a command runs.
///
/// The command is started directly, without a shell, once the lock is held. It has a process group of its own, its
/// standard streams and its terminal are untouched, signals reach it, and it does not outlive this program. The lock is
/// renewed while the command runs; should that fail, the command is ended before anybody else can get the lock.
///
/// Everything that the command has started ends with it (Linux): when the lock is lost, when --max-hold is over, after a
/// signal that asks for the end, and when this program is killed, also with kill -9. Processes in other sessions and
/// process groups, and those whose parent has ended, are included. Out of reach is what others start on its behalf
/// (systemd-run, at, docker) and what runs as another user, which is reported. What a command leaves running when it
/// ends by itself is left alone, without the lock.
///
/// TERM, INT, HUP, QUIT, USR1 and USR2 are passed on to the command and to everything in its process group; a second INT
/// or TERM kills them. What is outside of that group gets TERM when the command has ended, or half of the grace is over.
/// Before the lock is held, the first four end the wait, and the command is never started.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::RUN, override_usage = "fencelock run [OPTIONS] KEY -- COMMAND [ARGUMENT]...")]
pub(crate) struct Run {
    /// Name of the lock.
    pub(crate) key: String,
    /// The command and its arguments, which are never read as ours.
    ///
    /// It finds the key in FENCELOCK_KEY, where the lock lives in FENCELOCK_PLACE, the proof of the hold in
    /// FENCELOCK_HOLDER and the fencing token in FENCELOCK_FENCE. FENCELOCK_OUTER names the locks that this program
    /// itself runs under.
    #[allow(clippy::doc_markdown, reason = "it is a text for people")]
    #[arg(trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) patience: Patience,
    #[command(flatten)]
    pub(crate) nested: Nested,
    /// Let the command have FENCELOCK_PASSWORD, and FENCELOCK_URL if it has a password; else it gets neither.
    #[allow(clippy::doc_markdown, reason = "it is a text for people")]
    #[arg(long)]
    pub(crate) pass_url: bool,
    /// Exit with CODE instead of 75 if somebody else has the lock.
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
    #[command(flatten)]
    pub(crate) flock: Flock,
    #[command(flatten)]
    pub(crate) lease: LeaseArguments,
    /// Keep the lock for at least this long, even if the command ends earlier; a signal ends it.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, help_heading = "Holding")]
    pub(crate) hold_for: Option<Duration>,
    /// End the command after this long (exit 76).
    #[arg(long, value_name = "DURATION", value_parser = span::parse, help_heading = "Holding")]
    pub(crate) max_hold: Option<Duration>,
    /// Time between TERM and KILL, before the lease ends [default: a sixth of the TTL, at most 10s]
    #[arg(long, value_name = "DURATION", value_parser = span::parse, help_heading = "Holding")]
    pub(crate) grace: Option<Duration>,
    /// What to do when the lock is lost: end the command, or only say so.
    #[arg(long, value_enum, default_value_t = OnLost::Term, value_name = "WHAT", help_heading = "Holding")]
    pub(crate) on_lost: OnLost,
}

/// Options of flock(1), so that `alias flock='fencelock run'` does what is meant, or says why it does not.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "As flock(1) has them")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Flock {
    /// Run LINE with $SHELL, or with sh.
    #[arg(short = 'c', long = "command", value_name = "LINE", conflicts_with = "command")]
    pub(crate) line: Option<OsString>,
    /// Every lock is exclusive: this changes nothing.
    #[arg(short = 'x', short_alias = 'e', long)]
    pub(crate) exclusive: bool,
    /// No command inherits the lock: this changes nothing.
    #[arg(short = 'o', long)]
    pub(crate) close: bool,
    #[arg(short = 's', long, hide = true)]
    pub(crate) shared: bool,
    #[arg(short = 'u', long, hide = true)]
    pub(crate) unlock: bool,
    #[arg(short = 'F', long, hide = true)]
    pub(crate) no_fork: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM before the lease ends, then KILL.
    Term,
    /// A message; the command goes on, with the risk of two at a time.
    Warn,
}

/// Whether it is known that the lock is not one that this program itself runs under.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Nested {
    /// Wait also for a lock that this program was started under, for its hold is over.
    ///
    /// A command of `fencelock run KEY` that waits for the same KEY would wait for its own end, which is refused.
    #[arg(long, help_heading = "Waiting")]
    pub(crate) nested_ok: bool,
}

/// How long to wait for somebody else, and for servers that do not answer.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct Patience {
    /// Do not wait.
    #[arg(short, long, aliases = ["nonblock", "nb"], conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait at most this long: 5, 0.5, 90s, 2m, 1h30m [default: as long as it takes]
    #[arg(short, long, alias = "timeout", value_name = "DURATION", value_parser = span::parse)]
    pub(crate) wait: Option<Duration>,
}

impl Patience {
    /// `None` if there is no limit.
    pub(crate) fn limit(self) -> Option<Duration> {
        if self.no_wait { Some(Duration::ZERO) } else { self.wait }
    }
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Holding")]
pub(crate) struct LeaseArguments {
    /// How long the lock outlives a holder that died; it is renewed after each third of it.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "30s")]
    pub(crate) ttl: Duration,
    /// What the hold is for, shown to those who wait.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// Take KEY and keep it after the end of this program, for scripts.
///
/// Prints the holder, 32 hexadecimal digits: the proof that `renew` and `release` want. Nobody renews the lease
/// meanwhile, so choose a TTL longer than the work, or renew in time. Locks in files end with their process: use `run`.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Acquire {
    /// Name of the lock.
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) patience: Patience,
    #[command(flatten)]
    pub(crate) nested: Nested,
    /// How long the lock is held; only `renew` makes it longer.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "30s", help_heading = "Holding")]
    pub(crate) ttl: Duration,
    /// What the hold is for, shown to those who wait.
    #[arg(long, value_name = "TEXT", help_heading = "Holding")]
    pub(crate) label: Option<String>,
}

/// Keep KEY for longer.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Renew {
    /// Name of the lock.
    pub(crate) key: String,
    /// What `acquire` printed.
    #[arg(long)]
    pub(crate) holder: String,
    /// At least this long from now; a renewal never shortens.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "30s")]
    pub(crate) ttl: Duration,
}

/// Give KEY back.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Release {
    /// Name of the lock.
    pub(crate) key: String,
    /// What `acquire` printed.
    #[arg(long)]
    pub(crate) holder: String,
}

/// Tell whether KEY is free (exit 0), or who has it (exit 75).
///
/// Servers in quarantine may have forgotten who has it: then it is unknown (exit 69), not free.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Status {
    /// Name of the lock.
    pub(crate) key: String,
}

/// Show every key that is held now, or those that begin with PREFIX.
///
/// On Redis this goes through all keys of the database, other programs' too: about a second for each million of them, with
/// or without a PREFIX. The server goes on serving others meanwhile.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct List {
    /// Only keys that begin with this.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
}

/// Put the servers of a redlock:// URL into service.
///
/// Once before the first lock, and after each change of the list or of `max_ttl=`. Every server must answer. One that is new,
/// was restarted or flushed may have forgotten its locks; it begins its quarantine and serves when every lease it may have
/// granted is over. Doing it again changes nothing. Clients with another list or another `max_ttl=` fail from then on.
///
/// It is also for redis:// with quarantine=on.
#[allow(clippy::doc_markdown, reason = "it is a text for people")]
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Init {
    /// None of the servers has forgotten a lock: they are all new. They serve at once.
    ///
    /// Not for one new server among others that serve: it would grant what the one before it had granted.
    #[arg(long)]
    pub(crate) trust_empty: bool,
}

/// Wait until KEY is free, without taking it.
///
/// Somebody else may take it a moment later: to do something while nobody else does, use `run`.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Wait {
    /// Name of the lock.
    pub(crate) key: String,
    /// Wait at most this long: 5, 0.5, 90s, 2m, 1h30m [default: as long as it takes]
    #[arg(short = 'w', long = "wait", value_name = "DURATION", value_parser = span::parse)]
    pub(crate) limit: Option<Duration>,
    #[command(flatten)]
    pub(crate) nested: Nested,
}

/// End somebody else's hold of KEY.
///
/// Its holder is not asked. If it still works, two work at a time from here on, unless the fencing token is checked.
/// Without --yes this only shows whose hold would be ended.
///
/// What another program put there is shown, by type, length and first characters, and left alone, unless an option says that
/// it is a lock. Hashes, lists and other types are never deleted. A lock in a file ends with its process, and only so.
#[derive(Debug, Clone, Args)]
#[command(after_help = exit::OTHERS)]
pub(crate) struct Break {
    /// Name of the lock.
    pub(crate) key: String,
    /// Do it.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Also a lock of another library: a string with a TTL.
    #[arg(long)]
    pub(crate) foreign: bool,
    /// Also a string without a TTL, which may be data.
    #[arg(long)]
    pub(crate) foreign_without_ttl: bool,
}

/// Reads the arguments of this process.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    parse_from(&std::env::args_os().collect::<Vec<_>>())
}

/// What stands behind `--` is the command. To the parser it would be the key if none stands before.
pub(crate) fn parse_from(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let arguments = Arguments::try_parse_from(words)?;
    let before = words.iter().position(|word| word == "--").map_or(words, |at| &words[..at]);
    let Command::Run(_) = arguments.command else { return Ok(arguments) };
    match Arguments::try_parse_from(before) {
        Err(error) if lacks_key(&error) => {
            let why = "no KEY before `--`: what follows it is the command";
            let mut program = Arguments::command();
            let run = program.find_subcommand_mut("run").map(std::mem::take).unwrap_or(program);
            Err(run.bin_name("fencelock run").error(ErrorKind::MissingRequiredArgument, why))
        }
        _ => Ok(arguments),
    }
}

fn lacks_key(error: &clap::Error) -> bool {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return false };
    error.kind() == ErrorKind::MissingRequiredArgument && missing.iter().any(|argument| argument == "<KEY>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_run(line: &str) -> bool {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        let arguments = parse_from(&words);
        matches!(arguments, Ok(Arguments { command: Command::Run(_), .. }))
    }

    #[test]
    fn the_key_stands_before_the_two_dashes() {
        for line in ["k -- echo hi", "-n k -- echo", "k -n -- echo", "k echo -- hi", "k echo hi", "k -- echo -- hi"] {
            assert!(is_run(&format!("fencelock run {line}")), "{line}");
        }
        for line in ["-- echo hi", "-n -- echo hi", "-w 5 -- echo hi", "--label x -- k echo", "-- k -- echo"] {
            assert!(!is_run(&format!("fencelock run {line}")), "{line}");
        }
        assert!(!is_run("fencelock --url redis://h run -- echo hi"));
    }

    #[test]
    fn no_line_below_a_help_is_so_long_that_it_is_broken() {
        let program = Arguments::command();
        let commands = std::iter::once(&program).chain(program.get_subcommands());
        let notes = commands.flat_map(|command| [command.get_after_help(), command.get_after_long_help()]);
        for notes in notes.flatten().map(ToString::to_string) {
            for line in notes.lines() {
                assert!(line.chars().count() <= 100, "{line}");
            }
        }
    }
}
