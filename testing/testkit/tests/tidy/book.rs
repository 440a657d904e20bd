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
    let pages: Vec<_> = chapters().into_iter().map(|(path, _)| path).collect();
    assert!(pages.len() > 30, "only {} pages", pages.len());
    assert_eq!(pages, listed);
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
fn every_design_note_is_in_the_index_and_every_former_decision_in_one_note() {
    let index = fs::read_to_string(root().join("docs/design/README.md")).expect("an index");
    for (path, page) in chapters() {
        let Some(file) = path.strip_prefix("design/").filter(|file| *file != "README.md") else { continue };
        let title = page.text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a title");
        assert!(index.contains(&format!("| [{title}]({file}) |")), "{file} is not in the index as {title:?}");
    }
    let rows = index.lines().filter(|line| line.starts_with("| [")).filter_map(|line| line.split('|').nth(3));
    let mut former: Vec<u32> =
        rows.flat_map(|row| row.split(',')).map(|n| n.trim().parse().expect("a number")).collect();
    former.sort_unstable();
    assert_eq!(former, (1..=71).collect::<Vec<_>>());
}

#[test]
fn a_readme_is_short() {
    for name in ["README.md", "README.zh-CN.md"] {
        let lines = fs::read_to_string(root().join(name)).expect("a readme").lines().count();
        assert!(lines <= 130, "{name} has {lines} lines");
    }
}
