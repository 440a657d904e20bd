//! The examples in the documentation of `FenceGate` are the same as in `docs/en/fencing.md`, where they are tested.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

#[test]
fn the_examples_of_the_gate_are_those_of_the_page() {
    let gate = read("crates/fencelock-core/src/fence_gate.rs");
    let doc: Vec<_> = gate.lines().filter_map(|line| line.strip_prefix("///")).map(str::trim_start).collect();
    let doc = doc.join("\n");
    let page = read("docs/en/fencing.md");
    for language in ["sql", "lua"] {
        let begin = format!("```{language}\n");
        let recipe = doc.split(&begin).nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert!(page.contains(recipe), "not in docs/en/fencing.md: {recipe}");
    }
}
