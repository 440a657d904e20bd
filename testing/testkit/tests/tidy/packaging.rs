//! What packages and their users need: the owner of the repository, who is a placeholder until `scripts/owner` fills in a name, and
//! examples that are also in the book.

use crate::tree::root;
use std::fs;
use std::path::Path;
use std::process::Command;

const PLACEHOLDER: &str = "OWNER";

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

/// Runs a script in a directory; its output if it succeeds.
fn sh(directory: &Path, script: &str) -> Result<String, String> {
    let output = Command::new("bash").args(["-c", script]).current_dir(directory).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("{:?}: {complaint}", output.status.code())) }
}

/// The tracked files as they are now, in a repository of their own.
fn copy() -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a directory");
    let to = copy.path().display();
    sh(&root(), &format!("git ls-files -z | tar --null -T - -c | tar -x -C {to}")).expect("a copy");
    sh(copy.path(), "git init -q && git add -A").expect("a repository");
    copy
}

const PLACES: &str = "git grep -lw OWNER -- ':!scripts/owner' ':!testing/testkit/tests/tidy/packaging.rs' || true";
const CHANGES: &str = "git diff --name-only";

#[test]
fn one_script_fills_in_the_owner_everywhere_and_only_once() {
    if !text(root().join("Cargo.toml")).contains(&format!("/{PLACEHOLDER}/")) {
        return; // It has a name already.
    }
    let copy = copy();
    let places = sh(copy.path(), PLACES).unwrap();
    assert!(places.lines().count() > 3, "{places}");
    for nonsense in ["''", "a/b", "'a b'", "-a", "a--b", "'$(id)'", "owner", &"x".repeat(40), "a b"] {
        let refused = sh(copy.path(), &format!("./scripts/owner {nonsense}")).unwrap_err();
        assert!(refused.starts_with("Some(64)"), "{nonsense}: {refused}");
    }
    assert_eq!(sh(copy.path(), CHANGES).unwrap(), "");

    sh(copy.path(), "./scripts/owner Some-Org7").unwrap();
    assert_eq!(sh(copy.path(), PLACES).unwrap(), "");
    assert_eq!(sh(copy.path(), CHANGES).unwrap(), places);
    assert!(text(copy.path().join("Cargo.toml")).contains("\"https://github.com/Some-Org7/fencelock\""));
    let image = text(copy.path().join("packaging/kubernetes/deployment.yaml"));
    assert!(image.contains("image: ghcr.io/some-org7/fencelock:"), "names of images have small letters only");

    sh(copy.path(), "git add -A && ./scripts/owner Some-Org7").unwrap();
    assert!(sh(copy.path(), "./scripts/owner another").unwrap_err().contains("the owner is Some-Org7 already"));
    assert_eq!(sh(copy.path(), CHANGES).unwrap(), "");
    // A merge has brought the placeholder back.
    fs::write(copy.path().join("new.md"), format!("https://github.com/{PLACEHOLDER}/fencelock")).unwrap();
    sh(copy.path(), "git add new.md && ./scripts/owner Some-Org7").unwrap();
    assert_eq!(text(copy.path().join("new.md")), "https://github.com/Some-Org7/fencelock");
}

/// What installs or runs a package of this name from a registry.
fn asks_a_registry(line: &str) -> bool {
    const COMMANDS: [&str; 20] = [
        "pip install",
        "pip3 install",
        "pipx ",
        "uvx ",
        "uv tool",
        "uv add",
        "cargo add",
        "cargo binstall",
        "npm i",
        "npm add",
        "npx ",
        "yarn add",
        "pnpm add",
        "brew ",
        "apt install",
        "apt-get install",
        "dnf ",
        "docker ",
        "podman ",
        "nix ",
    ];
    let builds_a_crate = line.contains("cargo install") && !line.contains("--path");
    line.contains("fencelock") && (builds_a_crate || COMMANDS.iter().any(|command| line.contains(command)))
}

/// Until the names are ours, such a line would run the package of a stranger.
#[test]
fn the_readme_names_no_package_of_a_registry_while_the_owner_is_a_placeholder() {
    for line in [
        "pip install fencelock",
        "cargo install fencelock-cli",
        "cargo install --locked fencelock-cli",
        "npm i fencelock",
        "npm install -g fencelock",
        "brew install fencelock",
        "sudo apt install fencelock",
        "docker run ghcr.io/x/fencelock",
    ] {
        assert!(asks_a_registry(line), "{line}");
    }
    let is_ours = !text(root().join("Cargo.toml")).contains(&format!("/{PLACEHOLDER}/"));
    for readme in ["README.md", "README.zh-CN.md"] {
        let page = text(root().join(readme));
        assert!(
            page.contains("cargo install --locked --path crates/fencelock-cli"),
            "{readme} says how to install it from a clone"
        );
        let asking: Vec<_> = page.lines().filter(|line| asks_a_registry(line)).collect();
        assert!(is_ours || asking.is_empty(), "{readme}: {asking:#?}");
    }
}

/// Units that administrators copy, and the page that explains them.
#[test]
fn the_units_in_packaging_are_those_of_the_book() {
    let page = text(root().join("docs/en/operations.md"));
    let blocks: Vec<_> = page.split("```ini\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let units = ["nightly-report.service", "scheduler.service"];
    assert_eq!(blocks.len(), units.len());
    for (block, name) in blocks.into_iter().zip(units) {
        let unit = text(root().join("packaging/systemd").join(name));
        let mut lines = unit.lines();
        for line in block.lines() {
            assert!(lines.any(|found| found == line), "packaging/systemd/{name} lacks {line:?}, or has it elsewhere");
        }
    }
}
