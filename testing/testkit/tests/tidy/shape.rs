//! The shape of the modules: whole nouns, and one way to lay out a module with parts.

use crate::code::without_words;
use crate::tree::files;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A reader of a type has to open all files with an `impl` of it: what else a file does for it becomes a type or a function of its own.
const MOST_FILES: usize = 3;

/// The name of the type of each inherent `impl`.
fn inherent_impls(code: &str) -> Vec<&str> {
    let heads = code.lines().zip(code.match_indices('\n').map(|(at, _)| at));
    let begins = heads
        .filter(|(line, _)| line.trim_start().starts_with("impl"))
        .map(|(line, end)| end - line.trim_start().len());
    begins.filter_map(|begin| type_of(&code[begin + "impl".len()..])).collect()
}

/// The type of an `impl`, after that word; `None` if it is one of a trait, or written by a macro.
fn type_of(code: &str) -> Option<&str> {
    let head = code.split('{').next()?;
    let mut depth = 0_u32;
    let generics = head.starts_with('<').then(|| {
        head.char_indices().find(|(at, c)| {
            depth += u32::from(*c == '<');
            depth -= u32::from(*c == '>' && !head[..*at].ends_with('-'));
            depth == 0
        })
    });
    let head = generics.flatten().map_or(head, |(end, _)| &head[end + 1..]).trim_start();
    let path = head.split(['<', ' ', '\n']).next()?;
    let name = path.rsplit("::").next().filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))?;
    (!head.contains(" for ")).then_some(name)
}

/// The names of the types that the code defines.
fn definitions(code: &str) -> impl Iterator<Item = &str> {
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let pairs = words.clone().zip(words.skip(1));
    pairs.filter(|(word, _)| ["enum", "struct", "union"].contains(word)).map(|(_, name)| name)
}

/// The directory of the crate in which a file is.
fn crate_of(path: &Path) -> PathBuf {
    path.components().take(2).collect()
}

/// The number of leading parts that two paths have in common; the same path has the most.
fn nearness(one: &Path, other: &Path) -> usize {
    one.components().zip(other.components()).take_while(|(one, other)| one == other).count()
}

#[test]
fn a_type_is_implemented_in_few_files() {
    let sources: Vec<_> = files(".rs").into_iter().map(|file| (file.path, without_words(&file.text))).collect();
    let mut homes = BTreeMap::<_, Vec<&Path>>::new();
    for (path, code) in &sources {
        definitions(code).for_each(|name| homes.entry((crate_of(path), name)).or_default().push(path));
    }
    let mut spread = BTreeMap::<_, BTreeSet<&Path>>::new();
    for (path, code) in &sources {
        for name in inherent_impls(code) {
            // Of two types with one name, the nearer one is meant.
            let homes = homes.get(&(crate_of(path), name)).map_or(&[][..], Vec::as_slice);
            let home = homes.iter().max_by_key(|home| nearness(home, path)).copied().unwrap_or(path);
            spread.entry((home.display().to_string(), name)).or_default().insert(path);
        }
    }
    assert!(spread.len() > 500, "only {} types were found", spread.len());
    let wide: Vec<_> = spread.iter().filter(|(_, files)| files.len() > MOST_FILES).collect();
    assert!(wide.is_empty(), "a type has its `impl` in at most {MOST_FILES} files: {wide:#?}");
}

#[test]
fn a_module_with_parts_is_a_directory() {
    let paths: BTreeSet<_> = files(".rs").into_iter().map(|file| file.path).collect();
    let parents: BTreeSet<_> = paths.iter().filter_map(|path| path.parent()).collect();
    let beside: Vec<_> = paths.iter().filter(|path| parents.contains(path.with_extension("").as_path())).collect();
    assert!(beside.is_empty(), "these are called `mod.rs`, in the directory of their parts: {beside:#?}");
}

#[test]
fn impls_of_types_are_told_from_those_of_traits() {
    let code = "struct A;\nimpl A {\n    impl<T: Fn() -> u8> super::B<T> where T: C {}\n}\nimpl D for A {\n}\nimpl<'a> E<'a> {}\nimpl $name {}\n";
    assert_eq!(inherent_impls(code), ["A", "B", "E"]);
    assert!(definitions(code).eq(["A"]));
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
