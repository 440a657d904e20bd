//! The shape of the modules: whole nouns, and one way to lay out a module with parts.

use crate::code::without_words;
use crate::tree::files;
use std::collections::BTreeSet;
use std::path::Path;

/// The names of the types that the code defines.
fn definitions(code: &str) -> impl Iterator<Item = &str> {
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let pairs = words.clone().zip(words.skip(1));
    pairs.filter(|(word, _)| ["enum", "struct", "union"].contains(word)).map(|(_, name)| name)
}

#[test]
fn a_module_with_parts_is_a_directory() {
    let paths: BTreeSet<_> = files(".rs").into_iter().map(|file| file.path).collect();
    let parents: BTreeSet<_> = paths.iter().filter_map(|path| path.parent()).collect();
    let beside: Vec<_> = paths.iter().filter(|path| parents.contains(path.with_extension("").as_path())).collect();
    assert!(beside.is_empty(), "these are called `mod.rs`, in the directory of their parts: {beside:#?}");
}

/// What the architecture is described with: each word names one type that is visible outside of its file, in all of the product.
const CONCEPTS: [&str; 6] = ["Driver", "KeyEngine", "Lease", "Queue", "Slots", "Waiter"];

/// Words that say nothing about a type where its module is not seen.
const PRIVATE_ONLY: [&str; 5] = ["Engine", "Refusal", "Slot", "State", "Step"];

#[test]
fn a_word_of_the_architecture_names_one_type() {
    // The blocking types have the names of the async ones.
    let in_product = |path: &Path| {
        let mut parts = path.iter().filter_map(|part| part.to_str());
        (parts.next(), parts.nth(1)) == (Some("crates"), Some("src")) && parts.all(|part| part != "blocking")
    };
    let mut visible = Vec::new();
    for file in files(".rs").into_iter().filter(|file| in_product(&file.path)) {
        let code = without_words(&file.text);
        let public = code.lines().filter(|line| line.trim_start().starts_with("pub"));
        visible.extend(public.flat_map(definitions).map(str::to_owned));
    }
    let count = |word: &&str| visible.iter().filter(|name| name == word).count();
    assert_eq!(CONCEPTS.map(|word| (word, count(&word))), CONCEPTS.map(|word| (word, 1)));
    assert_eq!(PRIVATE_ONLY.map(|word| (word, count(&word))), PRIVATE_ONLY.map(|word| (word, 0)));
}
