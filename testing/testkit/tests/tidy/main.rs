//! Checks the parts of the style that a program can count.
#![allow(missing_docs)]

mod book;
mod code;
mod monitoring;
mod packaging;
mod pages;
mod public_types;
mod shape;
mod tree;

use code::{functions, without_words};
use std::fs;
use tree::{Crate, backends, crates, files, root};

const LONGEST_FILE: usize = 700;
const LONGEST_FUNCTION: usize = 70;
const LONGEST_SCRIPT: usize = 60;

/// The level of a crate. A crate may depend only on lower levels.
fn level(name: &str) -> u8 {
    match name {
        "fencelock-core" | "fencelock-search" => 0,
        "fencelock" | "fencelock-conformance" => 2,
        "fencelock-testkit" => 3,
        "fencelock-interop" | "fencelock-lab" | "fencelock-load" => 4,
        "fencelock-bench" | "fencelock-chaos" | "fencelock-cli" | "fencelock-examples" => 5,
        backend if backends().iter().any(|name| name == backend) => 1,
        // What only the tests of one backend need.
        of_backend if of_backend.ends_with("-testing") => 4,
        other => panic!("{other} has no level: add it here and in ARCHITECTURE.md"),
    }
}

fn sources_of(name: &str) -> Vec<(String, String)> {
    let dir = format!("crates/{name}/src");
    let sources = files(".rs").into_iter().filter(|file| file.path.starts_with(&dir));
    let sources: Vec<_> = sources.map(|file| (file.path.display().to_string(), without_words(&file.text))).collect();
    assert!(!sources.is_empty(), "no source in {dir}");
    sources
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

#[test]
fn files_are_short() {
    let long = files(".rs").into_iter().map(|file| (file.text.lines().count(), file.path));
    let long: Vec<_> = long.filter(|(lines, _)| *lines > LONGEST_FILE).collect();
    assert!(long.is_empty(), "more than {LONGEST_FILE} lines: {long:#?}");
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    let mut seen = 0;
    for file in files(".rs") {
        for (name, lines) in functions(&without_words(&file.text)) {
            seen += 1;
            if lines > LONGEST_FUNCTION {
                long.push(format!("{}: {name} has {lines} lines", file.path.display()));
            }
        }
    }
    assert!(long.is_empty(), "more than {LONGEST_FUNCTION} lines: {long:#?}");
    assert!(seen > 500, "only {seen} functions were found");
}

#[test]
fn scripts_are_short() {
    let scripts = ["scripts", "scripts/lib", ".ci"].map(|dir| root().join(dir));
    let scripts = scripts.iter().flat_map(|dir| fs::read_dir(dir).expect("a directory of scripts"));
    let scripts = scripts.map(|entry| entry.expect("an entry that can be read").path()).filter(|path| path.is_file());
    let lengths = scripts.map(|path| (fs::read_to_string(&path).expect("a text file").lines().count(), path));
    let (short, long): (Vec<_>, Vec<_>) = lengths.partition(|(lines, _)| *lines <= LONGEST_SCRIPT);
    assert!(long.is_empty(), "more than {LONGEST_SCRIPT} lines: {long:#?}");
    assert!(short.len() > 5, "only {} scripts were found", short.len());
}

#[test]
fn nothing_unfinished_is_left() {
    let mut found = Vec::new();
    for file in files(".rs") {
        let code = without_words(&file.text);
        for word in ["todo", "dbg", "unimplemented"] {
            if code.contains(&format!("{word}!")) {
                found.push(format!("{}: {word}!", file.path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn crates_depend_on_lower_levels_only() {
    for Crate { name, .. } in &crates() {
        level(name);
    }
    for this in crates() {
        for other in this.table("dependencies").into_iter().filter(|name| name.starts_with("fencelock")) {
            assert!(level(other) < level(&this.name), "{} must not depend on {other}", this.name);
        }
    }
}

#[test]
fn the_core_crate_depends_on_one_crate_without_dependencies() {
    let core = crates().into_iter().find(|this| this.name == "fencelock-core").expect("a crate");
    // Only this crate can implement the traits of serde for its types, so it has that optional dependency. The list of actions of
    // a call is a `SmallVec`.
    assert_eq!(core.table("dependencies"), ["serde", "smallvec"]);
    // The system's clock is read through it, by the feature `clock`.
    assert_eq!(core.table("target.'cfg(unix)'.dependencies"), ["rustix"]);
    for name in ["rustix", "serde"] {
        assert!(core.manifest.lines().any(|line| line == format!("{name} = {{ workspace = true, optional = true }}")));
    }
    assert!(!core.manifest.lines().any(|line| line.starts_with("default")), "no feature is on by itself");
}

#[test]
fn the_ground_floor_reads_the_clock_in_one_file_which_it_does_not_use() {
    for (path, code) in sources_of("fencelock-core") {
        if path.ends_with("/boot_clock.rs") {
            continue;
        }
        if !path.ends_with("/src/lib.rs") {
            assert!(!has_word(&code, "BootClock"), "{path} names the clock of production");
        }
        for word in ["Instant", "SystemTime", "rustix"] {
            assert!(!has_word(&code, word), "{path} names {word}");
        }
    }
}

#[test]
fn only_the_backends_use_redis() {
    for name in ["fencelock-core", "fencelock"] {
        for (path, code) in sources_of(name) {
            assert!(!has_word(&code, "redis"), "{path} uses the crate redis");
        }
        let this = crates().into_iter().find(|this| this.name == name).expect("a crate");
        assert!(!this.table("dependencies").contains(&"redis"), "{name} depends on redis");
    }
}

/// A manifest with `test = false` saves a program of tests, of which there are none.
#[test]
fn a_target_without_a_program_of_tests_has_no_tests() {
    let (sources, mut checked) = (files(".rs"), 0);
    for this in crates() {
        let untested = |head: &str| {
            let mut tables = this.manifest.split("\n[");
            tables.any(|table| table.starts_with(head) && table.lines().any(|line| line == "test = false"))
        };
        for file in sources.iter().filter(|file| file.path.starts_with(this.dir.join("src"))) {
            let is_program = file.path.ends_with("src/main.rs") || file.path.starts_with(this.dir.join("src/bin"));
            if untested(if is_program { "[bin]]" } else { "lib]" }) {
                checked += 1;
                let has_tests = file.text.contains("#[test]") || file.text.contains("::test]");
                assert!(!has_tests, "the tests of {} do not run", file.path.display());
            }
        }
    }
    assert!(checked > 10, "only {checked} files were found");
}

/// A macro removes a copy that nothing else removes: methods that several types have, with their documentation, and the requests to a
/// backend. A crate of backends may have one for its parameters.
const MACROS: [&str; 7] = [
    "crates/fencelock/src/blocking/facade.rs",
    "crates/fencelock/src/run.rs",
    "crates/fencelock/src/settings.rs",
    "crates/fencelock-core/src/backend.rs",
    "crates/fencelock-core/src/invalid.rs",
    "crates/fencelock-core/src/quorum/hold_votes.rs",
    "crates/fencelock-core/src/request.rs",
];

#[test]
fn few_files_outside_of_tests_define_macros() {
    let sources = files(".rs").into_iter().filter(|file| file.path.components().any(|part| part.as_os_str() == "src"));
    let with_macros = sources.filter(|file| without_words(&file.text).contains("macro_rules!"));
    let with_macros: Vec<_> = with_macros.map(|file| file.path.display().to_string()).collect();
    let of = |name: &String| with_macros.iter().filter(|path| path.contains(&format!("crates/{name}/"))).count();
    let in_backends: Vec<_> = backends().iter().map(of).collect();
    assert!(in_backends.iter().all(|count| *count <= 1), "{with_macros:#?}");
    assert!(MACROS.iter().all(|path| with_macros.iter().any(|found| found == path)), "{with_macros:#?}");
    assert_eq!(with_macros.len(), MACROS.len() + in_backends.iter().sum::<usize>(), "{with_macros:#?}");
}

#[test]
fn every_public_crate_has_a_description_a_home_and_a_readme() {
    const KEYS: [&str; 8] =
        ["description", "repository", "homepage", "documentation", "readme", "keywords", "categories", "include"];
    for this in crates().into_iter().filter(Crate::is_public) {
        let package = this.table("package");
        let missing: Vec<_> = KEYS.into_iter().filter(|key| !package.contains(key)).collect();
        assert!(missing.is_empty(), "{} has no {missing:?}", this.name);
        // The pages of a program are the book.
        let is_program = this.manifest.contains("[[bin]]");
        assert!(is_program || this.manifest.contains("\n[package.metadata.docs.rs]\n"), "{}: docs.rs", this.name);
        let readme = root().join(&this.dir).join("README.md");
        assert!(readme.exists(), "{} has no README.md", this.name);
    }
}
