//! Checks of all Markdown pages.

use crate::tree::{Source, crates, files, root};
use std::fs;

/// The lines outside of code blocks, with their numbers.
pub(crate) fn prose(page: &Source) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let mut lines = Vec::new();
    for (number, line) in page.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            lines.push((number + 1, line));
        }
    }
    lines
}

/// The targets of `[text](target)`.
pub(crate) fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The anchor of a heading, as common renderers create it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn link_targets_exist() {
    let pages = files(".md");
    let mut broken = Vec::new();
    for page in &pages {
        let dir = page.path.parent().expect("a file in a directory");
        for (number, link) in prose(page).iter().flat_map(|(n, line)| links(line).map(move |link| (n, link))) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { root().join(&page.path) } else { root().join(dir).join(file) };
            let is_there = target.exists()
                && (heading.is_empty()
                    || fs::read_to_string(&target)
                        .is_ok_and(|text| text.lines().any(|line| line.starts_with('#') && anchor(line) == heading)));
            if !is_there {
                broken.push(format!("{}:{number}: {link}", page.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// These pages name files by the end of their path, and tests of the invariants by their function.
#[test]
fn named_files_and_tests_exist() {
    let paths = |ending: &str| files(ending).into_iter().map(|file| file.path.display().to_string());
    let known = [".rs", ".lua", ".toml", ".jsonl"].into_iter().flat_map(paths);
    let known: Vec<_> = known.map(|path| format!("/{path}/")).collect();
    let sources = files(".rs");
    let (mut checked, mut missing) = (0, Vec::new());
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/en/verification.md"] {
        let page = Source { path: page.into(), text: fs::read_to_string(root().join(page)).expect(page) };
        for (number, line) in prose(&page) {
            for name in line.split('`').skip(1).step_by(2) {
                let is_path = (name.contains('/') || name.contains(".rs")) && !name.starts_with("target/");
                let is_test = name.matches('_').count() > 2 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                let name = name.trim_start_matches("./").trim_end_matches('/');
                let exists = if is_test {
                    sources.iter().any(|source| source.text.contains(&format!("fn {name}(")))
                } else if is_path && !name.contains([' ', '*', ':']) {
                    let part = format!("/{name}/");
                    root().join(name).exists() || known.iter().any(|path| path.contains(&part))
                } else {
                    continue;
                };
                checked += 1;
                if !exists {
                    missing.push(format!("{}:{number}: {name}", page.path.display()));
                }
            }
        }
    }
    assert!(checked > 100, "only {checked} names were checked");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn pages_contain_no_machine_specific_path() {
    let mut found = Vec::new();
    for page in files(".md") {
        for (number, line) in page.text.lines().enumerate() {
            if ["/home/", "/root/", "/work/", "/Users/", "C:\\"].iter().any(|dir| line.contains(dir)) {
                found.push(format!("{}:{}: {line}", page.path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_changelog_contains_this_version() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("a changelog");
    let heading = format!("## {}", env!("CARGO_PKG_VERSION"));
    assert!(changelog.lines().any(|line| line.starts_with(&heading)), "no {heading:?} in CHANGELOG.md");
}

#[test]
fn the_features_of_the_library_are_those_of_its_manifest_on_every_page() {
    let library = crates().into_iter().find(|found| found.name == "fencelock").expect("the library");
    let listed = |page: &str| -> Vec<String> {
        let text = fs::read_to_string(root().join(page)).expect(page);
        let lines = text.lines().map(|line| line.trim_start_matches("//!").trim());
        let section =
            lines.skip_while(|line| !line.contains("# Cargo ")).skip(1).take_while(|line| !line.starts_with('#'));
        section.filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect()
    };
    for pages in [&["crates/fencelock/src/backends/mod.rs", "crates/fencelock/src/lib.rs"][..], &["docs/en/library.md"]]
    {
        let all: Vec<_> =
            ["default".to_owned()].into_iter().chain(pages.iter().flat_map(|page| listed(page))).collect();
        assert_eq!(all, library.table("features"), "{pages:?}");
    }
}
