//! Errors of the command line, without advice that does something else than what was meant.

use crate::args::Arguments;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use fencelock::contract::is_slip;

/// The error as it is shown.
pub(crate) fn explain(mut error: clap::Error) -> clap::Error {
    let (mut program, usage) = (Arguments::command(), error.get(ContextKind::Usage).map(ToString::to_string));
    program.build();
    if error.kind() == ErrorKind::MissingSubcommand {
        let why = "a command is missing, such as `fencelock run KEY -- COMMAND`; `fencelock help` shows all";
        return program.error(error.kind(), why);
    }
    // The usage of the error leaves out options, or has one that nobody typed.
    let command = usage.map(|usage| named_in(&program, &usage));
    if let Some(word) = text_of(&error, ContextKind::InvalidSubcommand) {
        return no_command(&mut command.unwrap_or(program), word);
    }
    let name = command.as_ref().map(|command| command.get_name().to_owned()).unwrap_or_default();
    let typed = text_of(&error, ContextKind::InvalidArg).and_then(|typed| typed.strip_prefix("--"));
    let meant = typed.and_then(|typed| {
        let mut options = command.iter().flat_map(Command::get_arguments).filter_map(|option| option.get_long());
        options.find(|name| is_slip(typed, name)).map(|name| format!("--{name}"))
    });
    if let Some(mut command) = command {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
    }
    // "to pass '-t' as a value, use '-- -t'": of `run`, it would become the command.
    error.remove(ContextKind::Suggested);
    let advice = text_of(&error, ContextKind::InvalidArg).and_then(|word| option_elsewhere(&name, word));
    if let Some(advice) = advice {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    }
    // A prefix in common is not what a typist slips on.
    error.remove(ContextKind::SuggestedArg);
    if let Some(meant) = meant {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(meant));
    }
    let (typed, similar) = (ContextKind::InvalidValue, ContextKind::SuggestedValue);
    if !text_of(&error, typed).zip(text_of(&error, similar)).is_some_and(|(typed, similar)| is_slip(typed, similar)) {
        error.remove(similar);
    }
    error
}

/// The command `word` does not exist.
pub(crate) fn no_command(program: &mut Command, word: &str) -> clap::Error {
    let names: Vec<_> =
        program.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name).collect();
    let meant = names.iter().find(|name| (word.len() > 2 && name.starts_with(word)) || is_slip(word, name));
    let advice = match (elsewhere(word), meant) {
        _ if names.is_empty() => format!("`{}` has none", program.get_name()),
        (Some(advice), _) => advice.to_owned(),
        (None, Some(name)) => format!("did you mean `{name}`?"),
        (None, None) => format!("the commands are: {}", names.join(", ")),
    };
    program.error(ErrorKind::InvalidSubcommand, format!("there is no command `{word}`; {advice}"))
}

/// For what other lock programs and libraries call a command.
fn elsewhere(word: &str) -> Option<&'static str> {
    Some(match word {
        "lock" => {
            "to run a command under a lock: fencelock run KEY -- COMMAND; to take it and keep it: fencelock acquire KEY"
        }
        "exec" | "flock" | "with" | "start" | "shell" => "to run a command under a lock: fencelock run KEY -- COMMAND",
        "try" | "trylock" | "try-lock" | "try-acquire" => {
            "to run a command only if the lock is free: fencelock run -n KEY -- COMMAND"
        }
        "unlock" | "force-unlock" | "del" | "delete" | "rm" | "remove" | "evict" | "kill" => {
            "to release what `acquire` took: fencelock release KEY --holder ID; to release the lock of somebody else: \
             fencelock break KEY"
        }
        "extend" | "refresh" | "keepalive" | "keep-alive" => "to extend a lease: fencelock renew KEY --holder ID",
        "get" | "info" | "show" | "inspect" | "check" => "to see who holds a lock: fencelock status KEY",
        "ls" | "locks" | "keys" => "to see all held locks: fencelock list",
        "lead" | "leader" | "campaign" => "to run a command on one leader: fencelock elect NAME -- COMMAND",
        "sem" | "semaphore" => "to run at most N commands at a time: fencelock run --permits N KEY -- COMMAND",
        "diagnose" | "health" | "ping" => "to check the backend: fencelock doctor",
        _ => return None,
    })
}

/// For what an option is called elsewhere, or by another command.
fn option_elsewhere(command: &str, word: &str) -> Option<&'static str> {
    Some(match (command, word) {
        ("acquire" | "wait", word) if !word.starts_with(['-', '<']) => {
            "to run a command under a lock: fencelock run KEY -- COMMAND"
        }
        ("renew", "--holder <HOLDER>") => "`acquire` printed the ID of the holder, and only the holder renews",
        ("release", "--holder <HOLDER>") => {
            "`acquire` printed the ID of the holder; to release the lock of somebody else: fencelock break KEY"
        }
        ("break", "-f" | "-y" | "--force") => "to break the lock: --yes",
        ("run" | "elect" | "acquire" | "wait", "-t") => "to wait at most that long: -w DURATION",
        ("run" | "elect" | "acquire", "--expire" | "--lease" | "--lock-ttl") => {
            "to set the time to live: --ttl DURATION"
        }
        (_, "-u" | "--server" | "--host" | "--redis") => "to choose the backend: --url URL",
        _ => return None,
    })
}

/// The command that a usage is of: `Usage: fencelock run KEY`.
fn named_in(program: &Command, usage: &str) -> Command {
    let named = usage.split_whitespace().nth(2).and_then(|name| program.find_subcommand(name));
    named.unwrap_or(program).clone()
}

fn text_of(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        Some(ContextValue::Strings(all)) => all.first().map(String::as_str),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_has_the_name_of_one_elsewhere() {
        let program = Arguments::command();
        for command in program.get_subcommands() {
            assert!(elsewhere(command.get_name()).is_none(), "{}", command.get_name());
        }
    }
}
