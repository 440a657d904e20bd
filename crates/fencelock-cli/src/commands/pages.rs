use crate::args::Arguments;
use crate::context::print;
use crate::exit::Exit;
use crate::failure::Failure;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;

/// The date of the manual pages. It is fixed, so that builds are reproducible.
const DATE: &str = "2026-11-21";

/// Completion of the command after `run ... --`, which clap does not generate.
const BASH: &str = include_str!("completions/run.bash");
const FISH: &str = include_str!("completions/run.fish");
const ZSH: &str = include_str!("completions/run.zsh");

/// Writes a completion script.
pub(super) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "fencelock", &mut script);
    let script = String::from_utf8_lossy(&script);
    let of_run = match shell {
        Shell::Bash => BASH,
        Shell::Fish => FISH,
        Shell::Zsh => ZSH,
        _ => "",
    };
    print(&format!("{script}{of_run}"))?;
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
    let see = see_also(&command);
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

/// The page of the parent command. The page of the program lists its subcommands.
fn see_also(command: &Command) -> Option<String> {
    let (above, _) = command.get_display_name()?.rsplit_once('-')?;
    Some(format!("{above}(1)"))
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
