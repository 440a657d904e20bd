//! Checks of the contract of a backend that the compiler does not make.

use crate::code::{body_end, functions, without_words};
use crate::tree::{files, root};
use std::collections::BTreeSet;
use std::fs;

/// The methods whose default is right for a double: nothing to open, to announce, to confirm, to report or to try, one server, no
/// connections, no files.
const HARMLESS: [&str; 9] = [
    "announces_waiters",
    "ready",
    "renewal_group",
    "confirm_completion",
    "reconnected",
    "descriptors",
    "report",
    "try_out",
    "node_reconnected",
];

/// The code of a block that begins with these words.
fn block<'a>(code: &'a str, words: &str) -> Option<&'a str> {
    let begin = &code[code.find(words)?..];
    body_end(begin).map(|end| &begin[..end])
}

fn names(block: &str) -> BTreeSet<String> {
    functions(block).into_iter().map(|(name, _)| name).collect()
}

/// The methods with a default that refuses a request or loses a part of it.
fn refusing(path: &str, name: &str) -> BTreeSet<String> {
    let code = without_words(&fs::read_to_string(root().join(path)).expect("a source file"));
    let defaults = names(block(&code, &format!("pub trait {name}:")).expect("a trait"));
    let refusing: BTreeSet<_> = defaults.into_iter().filter(|name| !HARMLESS.contains(&name.as_str())).collect();
    assert!(!refusing.is_empty(), "{name} has no default");
    refusing
}

/// A double that inherits a refusal refuses what the capabilities of its backend promise, and tests of it are skipped.
#[test]
fn no_double_of_a_backend_inherits_a_refusal() {
    let traits = [("backend.rs", "Backend"), ("mode_changes.rs", "ModeChanges")];
    let traits = traits.map(|(path, name)| (name, refusing(&format!("crates/fencelock-core/src/{path}"), name)));
    let (mut inherited, mut doubles) = (Vec::new(), 0);
    // The skeleton of the guide is no double: it has what every backend has.
    let is_double = |part: &std::ffi::OsStr| part != "src" && part != "examples";
    for file in files(".rs").into_iter().filter(|file| file.path.iter().all(is_double)) {
        let code = without_words(&file.text);
        for (name, wanted) in &traits {
            let words = format!(" {name} for ");
            for at in code.match_indices(&words).map(|(at, _)| at) {
                let own = names(block(&code[at..], &words).expect("an implementation"));
                doubles += 1;
                inherited.extend(wanted.difference(&own).map(|method| format!("{}: {method}", file.path.display())));
            }
        }
    }
    assert!(inherited.is_empty(), "implement these in the double: {inherited:#?}");
    assert!(doubles > 5, "only {doubles} doubles were found");
}
