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

/// `ARCHITECTURE.md` and `CONTRIBUTING.md` name files by the end of their path.
#[test]
fn named_files_exist() {
    let paths = |ending: &str| files(ending).into_iter().map(|file| file.path.display().to_string());
    let known = [".rs", ".lua", ".toml", ".jsonl"].into_iter().flat_map(paths);
    let known: Vec<_> = known.map(|path| format!("/{path}/")).collect();
    let (mut checked, mut missing) = (0, Vec::new());
    for page in files(".md").into_iter().filter(|page| page.path.components().count() == 1) {
        if !["ARCHITECTURE.md", "CONTRIBUTING.md"].iter().any(|name| page.path.ends_with(name)) {
            continue;
        }
        for (number, line) in prose(&page) {
            let names = line.split('`').skip(1).step_by(2);
            let is_path = |name: &&str| {
                (name.contains('/') || name.contains(".rs"))
                    && !name.contains([' ', '*', ':'])
                    && !name.starts_with("target/")
            };
            for name in names.filter(is_path).map(|name| name.trim_start_matches("./").trim_end_matches('/')) {
                checked += 1;
                let part = format!("/{name}/");
                if !root().join(name).exists() && !known.iter().any(|path| path.contains(&part)) {
                    missing.push(format!("{}:{number}: {name}", page.path.display()));
                }
            }
        }
    }
    assert!(checked > 60, "only {checked} names were checked");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The comments of a source that document it.
fn documentation(source: &Source) -> Vec<(usize, &str)> {
    let lines = source.text.lines().map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).unwrap_or_default().trim_start()
    });
    lines.enumerate().map(|(number, line)| (number + 1, line)).collect()
}

#[test]
fn tables_have_a_header_and_rows_with_as_many_cells() {
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    let mut wrong = Vec::new();
    let (pages, sources) = (files(".md"), files(".rs"));
    let lines = pages.iter().map(|page| (page, prose(page)));
    for (file, lines) in lines.chain(sources.iter().map(|source| (source, documentation(source)))) {
        let (mut head, mut rows) = (None, 0);
        for (number, line) in lines {
            rows = if line.starts_with('|') { rows + 1 } else { 0 };
            if rows == 0 {
                head = None;
            } else if *head.get_or_insert(cells(line)) != cells(line) || rows == 2 && !line.contains("---") {
                wrong.push(format!("{}:{number}", file.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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
fn both_languages_of_the_readme_have_the_same_sections() {
    let levels = |name: &str| -> Vec<usize> {
        let text = fs::read_to_string(root().join(name)).expect("a readme");
        let page = Source { path: name.into(), text };
        let headings = prose(&page).into_iter().filter(|(_, line)| line.starts_with('#'));
        headings.map(|(_, line)| line.chars().take_while(|c| *c == '#').count()).collect()
    };
    assert_eq!(levels("README.md"), levels("README.zh-CN.md"));
}

#[test]
fn the_features_of_the_library_are_those_of_its_manifest_on_every_page() {
    let library = crates().into_iter().find(|found| found.name == "fencelock").expect("the library");
    for page in ["crates/fencelock/src/lib.rs", "docs/en/library.md", "docs/zh-CN/library.md"] {
        let text = fs::read_to_string(root().join(page)).expect(page);
        let lines = text.lines().map(|line| line.trim_start_matches("//!").trim());
        let section =
            lines.skip_while(|line| !line.contains("# Cargo ")).skip(1).take_while(|line| !line.starts_with('#'));
        let listed = section.filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
        assert_eq!([vec!["default"], listed.collect()].concat(), library.table("features"), "{page}");
    }
}
