use crate::identity::host;
use fencelock_core::{Invalid, TreePath};
use std::fs;
use std::io;
use std::path::{Component, MAIN_SEPARATOR, Path, PathBuf};

/// Finds a path, which need not exist, from the current directory, and whether it is wider than it was asked for.
///
/// The root is the nearest directory above it with `.git`, on this host; a submodule is a tree of its own. `root_name`, 1 to 64 bytes
/// without `/`, is the identity of the worktree instead, for clones that share locks; without a `.git` it is that of the current directory.
/// Symbolic links are resolved, and names have the case that they have in a file system without it. The lock is on the name: it stays
/// there when a file is renamed.
///
/// `src/*` and `src/**` are `src`. Any other path with a wildcard that does not exist is the directory before that, which is wider.
///
/// # Errors
/// [`Invalid`] for a path outside of the worktree of the current directory, for one that cannot be resolved, and those of
/// [`TreePath::new`].
pub fn find_path(path: impl AsRef<Path>, root_name: Option<&str>) -> Result<(TreePath, bool), Invalid> {
    let here = std::env::current_dir().and_then(fs::canonicalize);
    let here = here.map_err(|error| Invalid::new(format!("the current directory is unknown: {error}")))?;
    let path = path.as_ref();
    let invalid = |why: String| Invalid::new(format!("{}: {why}", path.display()));
    if path.as_os_str().is_empty() {
        return Err(Invalid::new("the path is empty: is a variable of the shell not set?"));
    }
    let (before, is_wider) = before_wildcards(&here, path);
    let real = canonical(&here.join(before)).map_err(|error| invalid(format!("cannot be resolved: {error}")))?;
    let (root, identity) = match (top_of(&here), root_name) {
        (_, Some(name)) if name.is_empty() || name.len() > 64 || name.contains('/') => {
            return Err(Invalid::new(format!("{name:?} is no name of a root: 1 to 64 bytes without /")));
        }
        (top, Some(name)) => (top.unwrap_or(&here), name.to_owned()),
        (Some(top), None) => {
            let inner = top_of(&real).filter(|inner| inner.starts_with(top)).unwrap_or(top);
            (inner, format!("{}:{}", host(), inner.display()).trim_end_matches('/').to_owned())
        }
        (None, None) => {
            let why = format!("no .git is in {} or above: name the root with --root-name", here.display());
            return Err(invalid(why));
        }
    };
    let outside = |_| invalid(format!("is {}, outside of {}", real.display(), root.display()));
    let relative = real.strip_prefix(root).map_err(outside)?;
    let text = relative.to_str().ok_or_else(|| invalid("a name that is not UTF-8 cannot be locked".to_owned()))?;
    let path = TreePath::new(&identity, &text.replace(MAIN_SEPARATOR, "/"))?;
    Ok((path, is_wider))
}

/// The nearest directory with `.git`, which a worktree has as a file.
fn top_of(path: &Path) -> Option<&Path> {
    path.ancestors().find(|above| above.join(".git").exists())
}

/// The directory before the first wildcard of a path that does not exist, and whether that is wider than the path.
fn before_wildcards<'a>(here: &Path, path: &'a Path) -> (PathBuf, bool) {
    let parts: Vec<Component<'a>> = path.components().collect();
    let is_wild = |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(['*', '?', '[', '{']);
    let wild = parts.iter().position(is_wild).filter(|_| here.join(path).symlink_metadata().is_err());
    let Some(wild) = wild else { return (path.to_owned(), false) };
    let (before, rest) = parts.split_at(wild);
    (before.iter().collect(), rest.iter().any(|part| !matches!(part.as_os_str().to_str(), Some("*" | "**"))))
}

/// The path without symbolic links. What does not exist is taken by its name.
fn canonical(path: &Path) -> io::Result<PathBuf> {
    let mut real = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = real.pop(),
            Component::Normal(name) => {
                let next = real.join(name);
                real = match fs::canonicalize(&next) {
                    Ok(found) => in_its_case(found),
                    // Who writes to a link without a target makes that.
                    Err(error) if error.kind() == io::ErrorKind::NotFound && !next.is_symlink() => next,
                    Err(error) => return Err(error),
                };
            }
            root => real.push(root),
        }
    }
    Ok(real)
}

/// The same path with its name as the directory lists it, where another case finds it too.
#[cfg(unix)]
fn in_its_case(path: PathBuf) -> PathBuf {
    use std::os::unix::fs::MetadataExt;
    let same = |other: &Path| {
        let files = (fs::symlink_metadata(&path), fs::symlink_metadata(other));
        matches!(files, (Ok(one), Ok(two)) if (one.dev(), one.ino()) == (two.dev(), two.ino()))
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let [lower, upper] = [name.to_lowercase(), name.to_uppercase()];
    if [&lower, &upper].into_iter().all(|other| *other == name || !same(&path.with_file_name(other))) {
        return path;
    }
    let listed = path.parent().and_then(|directory| fs::read_dir(directory).ok()).into_iter().flatten().flatten();
    let alike = listed.filter(|entry| entry.file_name().to_string_lossy().to_lowercase() == lower);
    let names: Vec<_> = alike.map(|entry| entry.path()).filter(|other| same(other)).collect();
    // Two names that differ in case are two links to one file.
    if let [one] = &names[..] { one.clone() } else { path }
}

#[cfg(not(unix))]
fn in_its_case(path: PathBuf) -> PathBuf {
    path
}
