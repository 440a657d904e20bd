use crate::args::Arguments;
use crate::context::{may_colour, print};
use crate::exit::{Exit, Failure};
use crate::mistakes::no_command;
use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;

/// The date of the manual pages. It is fixed, so that builds are reproducible.
const DATE: &str = "2026-11-21";

/// Completion of held keys, and of the command after `run ... --`, which clap does not generate.
const BASH: &str = include_str!("completions/run.bash");
const FISH: &str = include_str!("completions/run.fish");
const ZSH: &str = include_str!("completions/run.zsh");

/// Stands for a held key: no other argument has this hint, which only the script of zsh keeps.
const HELD: ValueHint = ValueHint::Username;

/// Writes a completion script.
pub(super) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut program = Arguments::command();
    // The names live as long as the program, which ends soon.
    let names = program.get_subcommands().map(|command| &*command.get_name().to_owned().leak());
    let names = PossibleValuesParser::new(names);
    for name in ["help", "man"] {
        let names = names.clone();
        program = program.mut_subcommand(name, |command| command.mut_arg("command", |name| name.value_parser(names)));
    }
    for name in ["status", "break", "release", "renew", "resize", "wait"] {
        program = program.mut_subcommand(name, |command| command.mut_arg("key", |key| key.value_hint(HELD)));
    }
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "fencelock", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = match shell {
        Shell::Bash => format!("{script}{BASH}"),
        Shell::Fish => format!("{script}{FISH}"),
        // The end of the script, which starts the completion, comes after our functions.
        Shell::Zsh => {
            script.split("\nif [ \"$funcstack").next().unwrap_or_default().replace(":_users'", ":_fencelock_held'")
                + ZSH
        }
        _ => script.into_owned(),
    };
    print(&script)?;
    Ok(Exit::Success)
}

/// Shows the help of the program, or of the command that `names` lead to.
pub(super) fn help(names: &[String]) -> Result<Exit, Failure> {
    let mut command = Arguments::command();
    command.build();
    for name in names {
        let found = command.find_subcommand(name).cloned();
        command = found.ok_or_else(|| Failure::of_arguments(&no_command(&mut command, name)))?;
    }
    let help = command.render_long_help();
    print(&if may_colour() { help.ansi().to_string() } else { help.to_string() })?;
    Ok(Exit::Success)
}

/// Writes a manual page in roff.
pub(super) fn man(name: Option<&str>) -> Result<Exit, Failure> {
    let mut program = Arguments::command();
    program.build();
    let command = match name {
        None => &program,
        Some(name) => program
            .find_subcommand(name)
            .ok_or_else(|| Failure::new(Exit::Usage, format!("no manual page: {name:?} is not a command")))?,
    };
    let page = render(command.clone()).map_err(|error| Failure::system("write a manual page", error))?;
    print(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Success)
}

fn render(mut command: Command) -> io::Result<Vec<u8>> {
    // Manual pages show the version only in the footer.
    command = command.disable_version_flag(true);
    let notes = command.get_after_long_help().or_else(|| command.get_after_help());
    let notes = notes.map(ToString::to_string).unwrap_or_default();
    let has_commands = command.get_subcommands().any(|command| !command.is_hide_set());
    // The page of the program lists its subcommands.
    let above = command.get_display_name().and_then(|name| name.rsplit_once('-'));
    let see = above.map(|(above, _)| format!("{above}(1)"));
    let man = Man::new(command).manual("Fencelock Manual").date(DATE);
    let man = man.source(concat!("fencelock ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    sections(&notes).to_writer(&mut page)?;
    if let Some(see) = see {
        let mut roff = Roff::new();
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman(see)]);
        roff.to_writer(&mut page)?;
    }
    Ok(page)
}

/// The notes of the help: sections under headings that end with a colon, with preserved columns.
fn sections(notes: &str) -> Roff {
    let mut roff = Roff::new();
    for section in notes.split("\n\n") {
        let (heading, lines) = section.split_once(":\n").unwrap_or(("Notes", section));
        roff.control("SH", [heading.to_uppercase().as_str()]);
        roff.control("nf", []);
        for line in lines.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff
}
