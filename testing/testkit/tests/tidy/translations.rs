//! The Chinese pages of the book. Where other tests compare the English page with the program, these compare the Chinese page with
//! the English one.

use crate::pages::prose;
use crate::tree::{Source, files, root};
use std::collections::BTreeSet;
use std::fs;

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

/// A page that is there in English only has no twin.
#[test]
fn every_chinese_page_has_an_english_one() {
    let pages = |lang: &str| -> Vec<_> {
        let files = files(".md").into_iter().filter(|page| page.path.starts_with(format!("docs/{lang}")));
        files.map(|page| page.path.file_name().expect("a name").to_owned()).collect()
    };
    let english = pages("en");
    let chinese = pages("zh-CN");
    assert!(chinese.len() > 8, "{chinese:?}");
    assert!(chinese.iter().all(|page| english.contains(page)), "{chinese:?}");
}

/// Other tests run the blocks of the English pages.
#[test]
fn both_languages_have_the_same_recipes() {
    let code = |lang: &str, name: &str| -> String { page(lang, name).text.split("```").skip(1).step_by(2).collect() };
    for name in ["cost.md", "fencing.md", "memory.md", "metrics.md", "operations.md"] {
        assert!(!code("en", name).is_empty(), "{name} has no code");
        assert_eq!(code("en", name), code("zh-CN", name), "{name}");
    }
}

/// What a command reference says before the first command.
fn general(reference: &str) -> &str {
    let (_, text) = reference.split_once("\n## fencelock\n").expect("a general part");
    text.split("\n### fencelock").next().unwrap_or_default()
}

/// The section of a command.
fn section<'a>(reference: &'a str, command: &str) -> &'a str {
    let (_, text) = reference.split_once(&format!("\n### {command}\n")).unwrap_or_else(|| panic!("no {command}"));
    text.split("\n### fencelock").next().unwrap_or_default()
}

/// Options, variables, fields, URLs and their options.
fn is_name(word: &str) -> bool {
    let option = word.trim_start_matches('-');
    let is_option = option.len() < word.len() && option.starts_with(|c: char| c.is_ascii_alphabetic());
    is_option || word.starts_with("file:") || ["_", "=", "://"].iter().any(|part| word.contains(part))
}

/// What an English help text names, as the Chinese page must write it.
fn named(help: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in help.lines() {
        let line = line.strip_prefix("Usage: ").or(line.strip_prefix("       ")).unwrap_or(line);
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["fencelock", ..] if !line.starts_with(' ') => _ = names.insert(line.to_owned()),
            ["-", value, ..] => _ = names.insert(format!("`{}`", value.trim_end_matches(':'))),
            [code, _, ..] if line.starts_with("  ") && code.starts_with(|c: char| c.is_ascii_digit()) => {
                names.insert(format!("| {code} |"));
            }
            _ => {}
        }
    }
    let flat = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for values in flat.split("[possible values: ").skip(1).filter_map(|text| text.split(']').next()) {
        names.extend(values.split(", ").map(|value| format!("`{value}`")));
    }
    for value in flat.split("[default: ").skip(1).filter_map(|text| text.split(']').next()) {
        names.extend((!value.contains(' ')).then(|| format!("默认 `{value}`")));
    }
    let words: Vec<_> = flat.split(' ').map(|word| word.trim_matches(|c| "`'\"()[].,;:".contains(c))).collect();
    for (word, next) in words.iter().zip(words.iter().skip(1)).filter(|(word, _)| is_name(word)) {
        let value = Some(next).filter(|next| word.starts_with("--") && next.starts_with('<') && next.ends_with('>'));
        names.insert(value.map_or_else(|| (*word).to_owned(), |value| format!("{word} {value}")));
    }
    names
}

/// Whether the text has this name, and not only a longer one.
fn has(text: &str, name: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let open = name.ends_with(|c: char| !c.is_ascii_alphanumeric());
    text.match_indices(name).any(|(at, _)| open || !goes_on(&text[at + name.len()..]))
}

#[test]
fn the_chinese_command_reference_has_all_names_of_the_english_one() {
    let (english, chinese) = (page("en", "cli-reference.md"), page("zh-CN", "cli-reference.md"));
    let commands: Vec<_> = english.text.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let listed: Vec<_> = chinese.text.lines().filter_map(|line| line.strip_prefix("### fencelock")).collect();
    assert_eq!(commands.iter().map(|command| &command["fencelock".len()..]).collect::<Vec<_>>(), listed);
    let (_, global) = general(&chinese.text).split_once("\n### 所有命令的选项\n").expect("the options of all commands");
    let (global, _) = global.split_once("\n### ").expect("another section");
    let (_, codes) = general(&chinese.text).split_once("\n### 管理锁的命令的退出码\n").expect("exit codes");
    let mut missing = Vec::new();
    let mut check = |command: &str, english: &str, chinese: &str| {
        let names = named(english);
        assert!(names.len() > 6, "{command}: {names:?}");
        missing.extend(names.into_iter().filter(|name| !has(chinese, name)).map(|name| format!("{command}: {name}")));
    };
    check("fencelock", general(&english.text), general(&chinese.text));
    for command in commands {
        let said = section(&chinese.text, command);
        let codes = if said.contains("(#管理锁的命令的退出码)") { codes } else { "" };
        check(command, section(&english.text, command), &[said, global, codes].concat());
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
