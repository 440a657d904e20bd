//! The command reference of the book is what the program prints.

use crate::backend::TestBackend;
use crate::test::Test;
use std::fmt::Write as _;
use std::path::Path;

const HEAD: &str = "\
# Command reference

`fencelock COMMAND --help` prints these texts. A test keeps this page up to date: run it with `FENCELOCK_UPDATE=1` to write the
page again.
";

fn help(command: &str) -> String {
    let backend = TestBackend::files();
    // Without a terminal the width comes from here.
    let output = Test::new(&backend, &format!("{command} --help")).env("COLUMNS", "100").without_url().output();
    assert_eq!(output.status, 0, "{command}: {}", output.stderr);
    output.stdout
}

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<String> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let named = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn write(page: &mut String, command: &str) {
    let (help, level) = (help(command), if command.is_empty() { "##" } else { "###" });
    let lines: Vec<_> = help.trim_end().lines().map(str::trim_end).collect();
    let _ =
        write!(page, "\n{level} {}\n\n```text\n{}\n```\n", format!("fencelock {command}").trim_end(), lines.join("\n"));
    for below in commands(&help) {
        write(page, format!("{command} {below}").trim_start());
    }
}

#[test]
fn the_command_reference_is_what_the_program_prints() {
    let mut page = HEAD.to_owned();
    write(&mut page, "");
    for part in ["### fencelock run", "### fencelock doctor", "--trust-empty", "trust_empty=true"] {
        assert!(page.contains(part), "no {part}");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/en/cli-reference.md");
    if std::env::var_os("FENCELOCK_UPDATE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    assert!(std::fs::read_to_string(&file).unwrap_or_default() == page, "run this test with FENCELOCK_UPDATE=1");
}
