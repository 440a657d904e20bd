//! The Chinese pages of the book.

use crate::pages::prose;
use crate::tree::{Source, files, root};
use std::fs;

/// The pages that exist in both languages, besides the README.
const TRANSLATED: [&str; 10] = [
    "choosing.md",
    "cli.md",
    "concepts.md",
    "faq.md",
    "getting-started.md",
    "library.md",
    "operations.md",
    "redis.md",
    "sessions.md",
    "why-naive-locks-break.md",
];

fn page(lang: &str, name: &str) -> Source {
    let path = format!("docs/{lang}/{name}");
    let text = fs::read_to_string(root().join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    Source { path: path.into(), text }
}

fn is_chinese(c: char) -> bool {
    matches!(c, '\u{3000}'..='\u{303f}' | '\u{4e00}'..='\u{9fff}' | '\u{ff00}'..='\u{ffef}')
}

/// Browsers show a line break between two Chinese characters as a space.
#[test]
fn no_chinese_paragraph_is_wrapped() {
    let mut found = Vec::new();
    for page in files(".md") {
        let lines = prose(&page);
        for pair in lines.windows(2) {
            let [(_, before), (number, line)] = pair else { continue };
            let goes_on = before.ends_with(is_chinese) && line.starts_with(|c| is_chinese(c) || c == '`');
            if goes_on && !before.starts_with('#') {
                found.push(format!("{}:{number}", page.path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_translated_pages_are_there_in_both_languages() {
    let chinese = files(".md").into_iter().filter(|page| page.path.starts_with("docs/zh-CN"));
    let chinese: Vec<_> = chinese.map(|page| page.path.file_name().expect("a name").to_owned()).collect();
    assert_eq!(chinese, TRANSLATED);
    for name in TRANSLATED {
        assert!(root().join("docs/en").join(name).exists(), "docs/en/{name}");
    }
}

/// Other tests run the blocks of the English page.
#[test]
fn both_languages_have_the_same_recipes() {
    for name in ["operations.md", "sessions.md"] {
        let code = |lang: &str| -> String { page(lang, name).text.split("```").skip(1).step_by(2).collect() };
        assert!(!code("en").is_empty());
        assert_eq!(code("en"), code("zh-CN"));
    }
}
