//! The files of the project.

use std::fs;
use std::path::{Path, PathBuf};

/// A file, with its path relative to the root of the project.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files with this extension; at least one, so that no test passes without input.
pub(crate) fn files(ending: &str) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root(), ending, &mut found);
    assert!(!found.is_empty(), "no {ending} file below {}", root().display());
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(dir: &Path, ending: &str, found: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).expect("a directory that can be read") {
        let path = entry.expect("an entry that can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            collect(&path, ending, found);
        } else if name.ends_with(ending) {
            let text = fs::read_to_string(&path).expect("a text file");
            let path = path.strip_prefix(root()).expect("a path below the root").to_owned();
            found.push(Source { path, text });
        }
    }
}

/// A crate of the workspace.
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) manifest: String,
    pub(crate) dir: PathBuf,
}

/// All crates of the workspace. Deeper directories are separate programs.
pub(crate) fn crates() -> Vec<Crate> {
    let is_ours = |path: &Path| match path.components().count() {
        2 => true,
        3 => path.starts_with("crates") || path.starts_with("testing"),
        _ => path.ends_with("testing/Cargo.toml"),
    };
    let manifests = files("Cargo.toml").into_iter().filter(|file| is_ours(&file.path));
    manifests
        .map(|file| {
            let dir = file.path.parent().expect("a manifest in a directory").to_owned();
            let name = file.text.lines().find_map(|line| line.strip_prefix("name = "));
            let name = name.expect("a package with a name").trim_matches('"').to_owned();
            Crate { name, manifest: file.text, dir }
        })
        .collect()
}

/// The crates of backends, which the manifest of the library lists.
pub(crate) fn backends() -> Vec<String> {
    let library = crates().into_iter().find(|found| found.name == "fencelock").expect("the library");
    let of_us = library.table("dependencies").into_iter().filter(|name| name.starts_with("fencelock-"));
    of_us.filter(|name| *name != "fencelock-core").map(str::to_owned).collect()
}

impl Crate {
    /// The names in a table of the manifest.
    pub(crate) fn table(&self, title: &str) -> Vec<&str> {
        let lines = self.manifest.lines().map(str::trim);
        let body = lines.skip_while(|line| *line != format!("[{title}]")).skip(1);
        let body = body.take_while(|line| !line.starts_with('['));
        let rows = body.filter(|line| !line.is_empty() && !line.starts_with('#'));
        rows.map(|line| line.split(['.', '=', ' ']).next().unwrap_or_default()).collect()
    }

    /// Whether the crate is published.
    pub(crate) fn is_public(&self) -> bool {
        !self.manifest.lines().any(|line| line.replace(' ', "") == "publish=false")
    }
}
