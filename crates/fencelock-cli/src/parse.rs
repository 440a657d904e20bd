//! Parses the words of the command line into [`Arguments`]. The parser of clap does not tell what stands before `--`.

use crate::args::{Arguments, Command, Run};
use crate::mistakes::explain;
use crate::settings::Settings;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// Parses the arguments of this process.
pub(crate) fn parse(settings: Option<&Settings>) -> Result<Arguments, clap::Error> {
    parse_from(&std::env::args_os().collect::<Vec<_>>(), settings)
}

/// Everything after `--` is the command. Without a KEY or NAME before it, the parser would read the first word of the command as
/// the KEY; with a path, it does.
pub(crate) fn parse_from(words: &[OsString], settings: Option<&Settings>) -> Result<Arguments, clap::Error> {
    let mut arguments = try_parse(words, settings)?;
    let dashes = words.iter().position(|word| word == "--");
    if let Command::Run(run) = &mut arguments.command
        && run.tree.path.is_some()
    {
        let before = try_parse(&words[..dashes.unwrap_or(words.len())], settings)?.command;
        if matches!(before, Command::Run(Run { key: Some(_), .. })) {
            let why = "--path is instead of a KEY; the command follows `--`: fencelock run --path PATH -- COMMAND";
            return Err(error_of("run", ErrorKind::ArgumentConflict, why));
        }
        run.command.splice(0..0, run.key.take().map(OsString::from));
        return Ok(arguments);
    }
    let Some(dashes) = dashes else { return Ok(arguments) };
    let (name, operand) = match arguments.command {
        Command::Run(_) => ("run", "KEY"),
        Command::Elect(_) => ("elect", "NAME"),
        _ => return Ok(arguments),
    };
    if try_parse(&words[..dashes], settings).is_err_and(|error| lacks(&error, operand)) {
        let why = format!("no {operand} before `--`: the words after `--` are the command");
        return Err(error_of(name, ErrorKind::MissingRequiredArgument, why));
    }
    if let Command::Run(run) = &arguments.command {
        refuse_words_before_dashes(run, words.len() - dashes - 1)?;
    }
    Ok(arguments)
}

/// A negative number after an option is its value, which is refused by name. The parser would take it for another option, and advise
/// to write it after `--`.
///
/// The settings are defaults of the options of the same names.
fn try_parse(words: &[OsString], settings: Option<&Settings>) -> Result<Arguments, clap::Error> {
    let takes_value = |argument: &clap::Arg| !argument.is_positional() && argument.get_action().takes_values();
    let negative = |argument: clap::Arg| {
        let takes = takes_value(&argument);
        argument.allow_negative_numbers(takes)
    };
    let with_default = |argument: clap::Arg| {
        let setting = settings.and_then(|settings| match argument.get_id().as_str() {
            "ttl" => settings.ttl.as_ref(),
            "label" => settings.label.as_ref(),
            _ => None,
        });
        let Some((value, _)) = setting else { return argument };
        argument.default_value(value.clone())
    };
    let mut program =
        Arguments::command().mut_subcommands(|command| command.mut_args(|argument| with_default(negative(argument))));
    let matches = program.try_get_matches_from_mut(words).map_err(explain)?;
    Arguments::from_arg_matches(&matches).map_err(|error| explain(error.format(&mut program)))
}

/// In `run KEY ssh host -- make`, the middle words may be the beginning of a command, or keys to someone who knows another tool.
/// The wrong guess would run `make` on this machine. With an option among them they can only be a command: `run KEY nice -n 9 -- make`.
fn refuse_words_before_dashes(run: &Run, words_after_dashes: usize) -> Result<(), clap::Error> {
    let (middle, command) = run.command.split_at(run.command.len().saturating_sub(words_after_dashes));
    let middle = middle.strip_suffix(&[OsString::from("--")]).unwrap_or(middle);
    if middle.is_empty() || middle.iter().any(|word| word.as_encoded_bytes().starts_with(b"-")) {
        return Ok(());
    }
    let words = |words: &[OsString]| words.iter().map(quoted).collect::<Vec<_>>();
    let (key, middle, command) =
        (quoted(&OsString::from(run.key.as_deref().unwrap_or_default())), words(middle), words(command).join(" "));
    let (also, middle) = (middle.join(" --also "), middle.join(" "));
    let why = format!(
        "words between the KEY and `--` may be keys or the beginning of the command: {middle}\n\
         for several keys:       fencelock run {key} --also {also} -- {command}\n\
         for a longer command:   fencelock run {key} -- {middle} -- {command}"
    );
    Err(error_of("run", ErrorKind::UnknownArgument, why))
}

/// A word as a shell reads it.
fn quoted(word: &OsString) -> String {
    let word = word.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,#".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
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
        let arguments = parse_from(&words, None);
        matches!(arguments, Ok(Arguments { command: Command::Run(_), .. }))
    }

    #[test]
    fn the_key_precedes_the_two_dashes() {
        for line in
            ["k -- echo hi", "-n k -- echo", "k -n -- echo", "k --also j -- echo", "k echo hi", "k -- echo -- hi"]
        {
            assert!(is_run(&format!("fencelock run {line}")), "{line}");
        }
        for line in ["-- echo hi", "-n -- echo hi", "-w 5 -- echo hi", "--label x -- k echo", "-- k -- echo"] {
            assert!(!is_run(&format!("fencelock run {line}")), "{line}");
        }
        assert!(!is_run("fencelock --url redis://h run -- echo hi"));
    }

    #[test]
    fn a_negative_number_is_the_value_of_its_option() {
        for line in ["run -w -5 k c", "run --ttl -1 k c", "run --slots -5 k c", "acquire -w -0.5 k"] {
            let words: Vec<_> = format!("fencelock {line}").split(' ').map(OsString::from).collect();
            let error = parse_from(&words, None).unwrap_err().to_string();
            assert!(error.starts_with("error: invalid value '-") && !error.contains("-- -"), "{line}: {error}");
        }
    }

    #[test]
    fn the_first_word_is_the_key_and_also_names_others() {
        let parsed = |line: &str| {
            let words: Vec<_> = format!("fencelock run {line}").split(' ').map(OsString::from).collect();
            let Command::Run(run) = parse_from(&words, None).unwrap().command else { panic!("{line}") };
            let command: Vec<_> = run.command.iter().map(|word| word.to_str().unwrap().to_owned()).collect();
            (run.key.unwrap(), run.more_keys.join("+"), command.join("+"))
        };
        for (line, key, also, command) in [
            ("a --also b --also c -- d e", "a", "b+c", "d+e"),
            ("-n --also b a -- c", "a", "b", "c"),
            ("a --also b -n c", "a", "b", "c"),
            ("a -- b -- c", "a", "", "b+--+c"),
            ("a --also b -- c -- d", "a", "b", "c+--+d"),
            ("a --also b --", "a", "b", ""),
            ("a b c", "a", "", "b+c"),
            ("a b --also c", "a", "", "b+--also+c"),
            ("a nice -n 9 -- b", "a", "", "nice+-n+9+--+b"),
        ] {
            assert_eq!(parsed(line), (key.to_owned(), also.to_owned(), command.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_word_between_the_key_and_the_two_dashes_is_refused_with_both_forms() {
        for (line, several, command) in [
            ("a b -- c", "a --also b -- c", "a -- b -- c"),
            ("-n a b c -- d -- e", "a --also b --also c -- d -- e", "a -- b c -- d -- e"),
            ("a ssh host -- rm -rf x", "a --also ssh --also host -- rm -rf x", "a -- ssh host -- rm -rf x"),
            ("a  -- b", "a --also '' -- b", "a -- '' -- b"),
            ("a --also b c -- d", "a --also c -- d", "a -- c -- d"),
            ("a b$c -- d", "a --also 'b$c' -- d", "a -- 'b$c' -- d"),
        ] {
            let words: Vec<_> = format!("fencelock run {line}").split(' ').map(OsString::from).collect();
            let error = parse_from(&words, None).unwrap_err().to_string();
            for form in [several, command] {
                assert!(error.contains(&format!("fencelock run {form}\n")), "{line}: {error}");
            }
        }
    }
}
