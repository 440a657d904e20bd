use crate::args::Arguments;
use crate::context::print;
use crate::exit::Exit;
use crate::failure::Failure;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;

/// Writes a completion script.
pub(super) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "fencelock", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}

/// Writes a manual page in the language of `man`.
pub(super) fn man(command: Option<&str>) -> Result<Exit, Failure> {
    let mut program = Arguments::command();
    program.build();
    let command = match command {
        None => program,
        Some(name) => program
            .find_subcommand(name)
            .cloned()
            .ok_or_else(|| Failure::new(Exit::Usage, format!("there is no command {name:?} to write a page about")))?,
    };
    let page = render(command).map_err(|error| Failure::system("write a manual page", error))?;
    print(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Success)
}

fn render(mut command: Command) -> io::Result<Vec<u8>> {
    // Manual pages say the version once, at the foot.
    command = command.disable_version_flag(true);
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_commands = command.get_subcommands().any(|command| !command.is_hide_set());
    let man = Man::new(command).manual("fencelock").source(concat!("fencelock ", env!("CARGO_PKG_VERSION")));
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
    Ok(page)
}

/// What stands below the help: paragraphs under headings that end with a colon, with columns to be kept.
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
