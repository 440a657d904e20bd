use crate::args::Arguments;
use crate::context::print;
use crate::exit::Exit;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

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
    let mut page = Vec::new();
    let written = Man::new(command).manual("fencelock").render(&mut page);
    written.map_err(|error| Failure::system("write a manual page", error))?;
    print(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Success)
}
