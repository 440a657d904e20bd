//! What is missing if the system "did not find" a command.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The kernel reads this much of a script to find its interpreter.
const HEAD: u64 = 256;

/// What shells do themselves, because a program of its own could not.
const OF_SHELLS: [&str; 14] =
    [".", "alias", "cd", "eval", "exec", "exit", "export", "read", "set", "source", "trap", "ulimit", "umask", "unset"];

/// The system reports the same error if the file of the command does not exist and if its interpreter does not.
pub(crate) fn explain(command: &[OsString]) -> String {
    let found = command.first().and_then(|program| find(program, std::env::var_os("PATH").as_deref()));
    match (found, command) {
        (Some(file), _) => what_is_missing(&file),
        (None, [line]) if line.as_encoded_bytes().contains(&b' ') => {
            "command not found: it is one word with spaces; a shell runs such a line: -- sh -c LINE".to_owned()
        }
        (None, [name, ..]) if name.to_str().is_some_and(|name| OF_SHELLS.contains(&name)) => {
            "it is a command of the shell: -- sh -c LINE".to_owned()
        }
        (None, _) => "command not found".to_owned(),
    }
}

/// Looks where the system looks.
fn find(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|file| file.exists());
    }
    let folders = std::env::split_paths(path.unwrap_or_default());
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn what_is_missing(file: &Path) -> String {
    let mut head = Vec::new();
    let _ = File::open(file).and_then(|opened| opened.take(HEAD).read_to_end(&mut head));
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(words) = line.strip_prefix(b"#!") else {
        return "the file exists, but not the loader that it names: it may be built for another system".to_owned();
    };
    let words = String::from_utf8_lossy(words);
    let interpreter = words.trim_start_matches([' ', '\t']).split([' ', '\t']).next().unwrap_or_default();
    match interpreter.strip_suffix('\r') {
        Some(intended) => format!(
            "its first line ends with a carriage return, so the system looks for the interpreter {intended}\\r: save the \
             file with Unix line ends"
        ),
        None if Path::new(interpreter).exists() => {
            format!("the file exists, but its interpreter {interpreter} cannot be loaded")
        }
        None => format!("the file exists, but not its interpreter {interpreter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_in_one_word_needs_a_shell() {
        let said = |words: &[&str]| explain(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(said(&["echo hi"]).ends_with("-- sh -c LINE"));
        assert_eq!(said(&["echo hi", "x"]), "command not found");
        assert!(said(&["source", "x"]).ends_with("-- sh -c LINE"));
    }

    #[test]
    fn the_path_is_searched_for_a_name_only() {
        let folder = std::env::temp_dir();
        let path = std::env::join_paths([Path::new("/no/such/folder"), Path::new("/bin")]).unwrap();
        assert_eq!(find("sh".as_ref(), Some(&path)), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find("no-such-command".as_ref(), Some(&path)), None);
        assert_eq!(find("sh".as_ref(), None), None);
        assert_eq!(find(folder.as_os_str(), None), Some(folder));
        assert_eq!(find("/no/such/file".as_ref(), Some(&path)), None);
    }
}
