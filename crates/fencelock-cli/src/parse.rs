//! Parses the words of the command line into [`Arguments`]. The parser of clap cannot find the end of the keys of `run`.

use crate::args::{Arguments, Command, Run};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;

/// Parses the arguments of this process.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    parse_from(&std::env::args_os().collect::<Vec<_>>())
}

/// Everything after `--` is the command. Without a KEY or NAME before it, the parser would read the first word of the command as
/// the KEY.
pub(crate) fn parse_from(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let mut arguments = Arguments::try_parse_from(words)?;
    let Some(dashes) = words.iter().position(|word| word == "--") else { return Ok(arguments) };
    let (name, operand) = match arguments.command {
        Command::Run(_) => ("run", "KEY"),
        Command::Elect(_) => ("elect", "NAME"),
        _ => return Ok(arguments),
    };
    if Arguments::try_parse_from(&words[..dashes]).is_err_and(|error| lacks(&error, operand)) {
        let why = format!("no {operand} before `--`: the words after `--` are the command");
        return Err(error_of(name, ErrorKind::MissingRequiredArgument, why));
    }
    if let Command::Run(run) = &mut arguments.command {
        run.take_more_keys(words.len() - dashes - 1)?;
    }
    Ok(arguments)
}

impl Run {
    /// Words between the first KEY and `--` are keys. If one of them is an option, they are the beginning of a command:
    /// `run KEY nice -n 9 -- make`.
    fn take_more_keys(&mut self, words_after_dashes: usize) -> Result<(), clap::Error> {
        let before = self.command.len().saturating_sub(words_after_dashes);
        let keys = self.command[..before].strip_suffix(&[OsString::from("--")]).unwrap_or(&self.command[..before]);
        if keys.iter().any(|key| key.as_encoded_bytes().starts_with(b"-")) {
            return Ok(());
        }
        let text = |key: &OsString| {
            let why = || format!("a KEY is not valid UTF-8: {}", key.to_string_lossy());
            key.to_str().map(str::to_owned).ok_or_else(|| error_of("run", ErrorKind::InvalidUtf8, why()))
        };
        self.more_keys = keys.iter().map(text).collect::<Result<_, _>>()?;
        self.command.drain(..before);
        Ok(())
    }
}

fn error_of(command: &str, kind: ErrorKind, why: impl std::fmt::Display) -> clap::Error {
    let mut program = Arguments::command();
    let found = program.find_subcommand_mut(command).map(std::mem::take).unwrap_or(program);
    found.bin_name(format!("fencelock {command}")).error(kind, why)
}

fn lacks(error: &clap::Error, operand: &str) -> bool {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return false };
    let wanted = format!("<{operand}>");
    error.kind() == ErrorKind::MissingRequiredArgument && missing.contains(&wanted)
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
    fn the_key_precedes_the_two_dashes() {
        for line in ["k -- echo hi", "-n k -- echo", "k -n -- echo", "k echo -- hi", "k echo hi", "k -- echo -- hi"] {
            assert!(is_run(&format!("fencelock run {line}")), "{line}");
        }
        for line in ["-- echo hi", "-n -- echo hi", "-w 5 -- echo hi", "--label x -- k echo", "-- k -- echo"] {
            assert!(!is_run(&format!("fencelock run {line}")), "{line}");
        }
        assert!(!is_run("fencelock --url redis://h run -- echo hi"));
    }

    #[test]
    fn the_words_before_the_two_dashes_are_keys_unless_one_is_an_option() {
        let parsed = |line: &str| {
            let words: Vec<_> = format!("fencelock run {line}").split(' ').map(OsString::from).collect();
            let Command::Run(run) = parse_from(&words).unwrap().command else { panic!("{line}") };
            let command: Vec<_> = run.command.iter().map(|word| word.to_str().unwrap().to_owned()).collect();
            (run.key, run.more_keys.join("+"), command.join("+"))
        };
        for (line, key, more, command) in [
            ("a b c -- d e", "a", "b+c", "d+e"),
            ("-n a b -- c", "a", "b", "c"),
            ("a -n b -- c", "a", "b", "c"),
            ("a -- b -- c", "a", "", "b+--+c"),
            ("a b -- c -- d", "a", "b", "c+--+d"),
            ("a b --", "a", "b", ""),
            ("a b c", "a", "", "b+c"),
            ("a nice -n 9 -- b", "a", "", "nice+-n+9+--+b"),
            ("a  -- b", "a", "", "b"),
        ] {
            assert_eq!(parsed(line), (key.to_owned(), more.to_owned(), command.to_owned()), "{line}");
        }
    }
}
