//! Checks that a public type says whether it may grow.

use crate::code::{body_end, without_words};
use crate::tree::{Source, backends, crates, files, root};
use std::fs;

/// An enum, or a struct with public fields.
struct OpenType {
    name: String,
    /// Its documentation and attributes.
    head: String,
}

fn open_types(source: &str) -> Vec<OpenType> {
    let (code, lines) = (without_words(source), source.lines().collect::<Vec<_>>());
    let code: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (at, line) in code.iter().enumerate() {
        let line = line.trim_start();
        let Some(rest) = ["pub enum ", "pub struct "].iter().find_map(|words| line.strip_prefix(words)) else {
            continue;
        };
        if line.starts_with("pub struct ") && !has_public_field(&code[at..].join("\n")) {
            continue;
        }
        let begin = lines[..at].iter().rposition(|line| line.trim().is_empty()).map_or(0, |blank| blank + 1);
        let name = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
        found.push(OpenType { name, head: lines[begin..at].join("\n") });
    }
    found
}

/// Whether a struct that begins the code has a field that is public without a restriction.
fn has_public_field(code: &str) -> bool {
    let end = body_end(code).or_else(|| code.find(';')).unwrap_or(code.len());
    code[..end].matches("pub ").count() > 1
}

/// Whether the file belongs to a module whose documentation says that its types are exhaustive.
fn module_is_exhaustive(file: &Source) -> bool {
    let modules = file.path.ancestors().skip(1).map(|dir| root().join(dir).join("mod.rs"));
    let mut texts = modules.filter_map(|module| fs::read_to_string(module).ok());
    texts.any(|text| text.lines().any(|line| line.starts_with("//! Exhaustive: ")))
}

/// A new variant or field breaks the build of those who match or build a type without `#[non_exhaustive]`. That can be intended:
/// then the documentation gives the reason.
#[test]
fn a_public_type_may_grow_or_says_why_not() {
    let libraries = [backends(), vec!["fencelock-core".to_owned(), "fencelock".to_owned()]].concat();
    let dirs = crates().into_iter().filter(|this| libraries.contains(&this.name));
    let dirs: Vec<_> = dirs.map(|this| this.dir.join("src")).collect();
    assert_eq!(dirs.len(), libraries.len());
    let (mut silent, mut growing, mut exhaustive) = (Vec::new(), 0, 0);
    for file in files(".rs").into_iter().filter(|file| dirs.iter().any(|dir| file.path.starts_with(dir))) {
        for OpenType { name, head } in open_types(&file.text) {
            match (head.contains("#[non_exhaustive]"), head.contains("xhaustive")) {
                (true, _) => growing += 1,
                (false, true) => exhaustive += 1,
                (false, false) if module_is_exhaustive(&file) => exhaustive += 1,
                (false, false) => silent.push(format!("{}: {name}", file.path.display())),
            }
        }
    }
    assert!(silent.is_empty(), "add #[non_exhaustive], or `Exhaustive: <reason>` to the documentation: {silent:#?}");
    assert!(growing > 20 && exhaustive > 20, "only {growing} and {exhaustive} were found");
}

#[test]
fn a_struct_without_public_fields_is_not_open() {
    let source = "/// One.\n#[a]\npub enum A { B }\n\npub struct C(u8);\n\npub struct D(pub u8);\n\n/// E.\npub struct E {\n    \
                  pub(crate) a: u8,\n}\npub struct F {\n    /// A field.\n    pub a: [u8; 2],\n}\n";
    let found = open_types(source);
    assert_eq!(found.iter().map(|open| open.name.as_str()).collect::<Vec<_>>(), ["A", "D", "F"]);
    assert_eq!(found[0].head, "/// One.\n#[a]");
}
