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
    assert!(pages.len() > 25, "only {} pages", pages.len());
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

/// Other tests run the recipes of the English page.
#[test]
fn both_languages_have_the_same_recipes() {
    let code = |language: &str| -> String {
        let page = fs::read_to_string(root().join("docs").join(language).join("sessions.md")).expect("a page");
        page.split("```").skip(1).step_by(2).collect()
    };
    assert!(!code("en").is_empty());
    assert_eq!(code("en"), code("zh-CN"));
}
