//! The structure of the book in `docs`. The links of its pages are checked together with all other pages.

use crate::pages::{links, prose};
use crate::tree::{Source, files, root};
use std::fs;
use std::path::Path;

fn summary() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("a summary");
    text.lines().flat_map(links).map(str::to_owned).collect()
}

/// The pages of the book, as paths relative to `docs`.
fn chapters() -> Vec<(String, Source)> {
    let pages = files(".md").into_iter().filter_map(|page| {
        let path = page.path.strip_prefix("docs").ok()?.display().to_string();
        (path != "SUMMARY.md").then_some((path, page))
    });
    pages.collect()
}

#[test]
fn every_page_of_the_book_is_in_its_summary_exactly_once() {
    let mut listed = summary();
    let count = listed.len();
    listed.sort();
    listed.dedup();
    assert_eq!(listed.len(), count, "a page is listed twice");
    // The decisions have their own index.
    let pages: Vec<_> = chapters().into_iter().map(|(path, _)| path).filter(|path| !is_decision(path)).collect();
    assert!(pages.len() > 30, "only {} pages", pages.len());
    assert_eq!(pages, listed.into_iter().filter(|path| !is_decision(path)).collect::<Vec<_>>());
}

fn is_decision(path: &str) -> bool {
    path.starts_with("decisions/") && path != "decisions/README.md"
}

/// A built book contains no other files of the repository.
#[test]
fn the_book_contains_no_link_to_files_outside() {
    let mut found = Vec::new();
    for (path, page) in chapters() {
        let depth = Path::new(&path).components().count() - 1;
        for (number, line) in prose(&page) {
            for link in links(line).filter(|link| link.matches("../").count() > depth) {
                found.push(format!("docs/{path}:{number}: {link}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_decision_is_numbered_and_listed() {
    let index = fs::read_to_string(root().join("docs/decisions/README.md")).expect("an index");
    let (mut number, listed) = (0, summary());
    for (path, page) in chapters().into_iter().filter(|(path, _)| is_decision(path)) {
        number += 1;
        let file = path.strip_prefix("decisions/").expect("a decision");
        assert!(file.starts_with(&format!("{number:04}-")), "{file} is not number {number}");
        let title = page.text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a title");
        let (_, title) = title.split_once(". ").expect("a number and a title");
        assert!(index.contains(&format!("[{title}]({file})")), "{file} is not in the index as {title:?}");
        assert!(listed.contains(&path), "{path} is not in the summary");
        for heading in ["## Context", "## Decision", "## Consequences"] {
            assert!(page.text.contains(heading), "{file} has no {heading}");
        }
    }
    assert!(number > 20, "only {number} decisions");
}

#[test]
fn a_readme_is_short() {
    for name in ["README.md", "README.zh-CN.md"] {
        let lines = fs::read_to_string(root().join(name)).expect("a readme").lines().count();
        assert!(lines <= 130, "{name} has {lines} lines");
    }
}
