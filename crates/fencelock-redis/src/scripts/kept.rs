//! The scripts of each version of the wire format are kept, so that later versions are tested with them: see `tests/wire/main.rs`.

use super::lua::{LOCK, Lua};
use super::script::{
    ACQUIRE, DOWNGRADE, EVICT, GRANTING, HANDSHAKE, INIT, INSPECT, RAISE, READ_COMPLETION, RELEASE, RENEW, RESIZE,
    WRITE_COMPLETION,
};
use super::wire::WIRE;
use std::path::Path;

/// The part that most scripts have, once.
const SHARED_PART: &str = "--@granting\n";

fn kept() -> Vec<(&'static str, String)> {
    let granting = without_comments(Lua::alone(&[&[LOCK], &GRANTING[..]].concat().concat()).source());
    let scripts: [(&str, &Lua); 12] = [
        ("acquire", &ACQUIRE),
        ("release", &RELEASE),
        ("renew", &RENEW),
        ("raise", &RAISE),
        ("downgrade", &DOWNGRADE),
        ("resize", &RESIZE),
        ("evict", &EVICT),
        ("inspect", &INSPECT),
        ("read_completion", &READ_COMPLETION),
        ("write_completion", &WRITE_COMPLETION),
        ("handshake", &HANDSHAKE),
        ("init", &INIT),
    ];
    let kept = scripts.map(|(name, lua)| (name, without_comments(lua.source()).replace(&granting, SHARED_PART)));
    let kept: Vec<_> = kept.into_iter().chain([("granting", granting)]).collect();
    assert_eq!(kept.iter().filter(|(_, script)| script.contains(SHARED_PART)).count(), 5);
    kept
}

fn without_comments(source: &str) -> String {
    let code = source.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with("--"));
    code.map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn the_first_scripts_of_this_version_are_kept() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire").join(format!("v{WIRE}"));
    // Only the first ones: later clients of this version must still work with them.
    if directory.join("granting.lua").exists() {
        return;
    }
    let missing = "see tests/wire/main.rs";
    assert!(
        std::env::var_os("FENCELOCK_UPDATE").is_some(),
        "version {WIRE} has no scripts in {}: {missing}",
        directory.display()
    );
    std::fs::create_dir_all(&directory).unwrap();
    for (name, script) in kept() {
        std::fs::write(directory.join(name).with_extension("lua"), script).unwrap();
    }
}
