use super::File;
use fencelock_core::{BenchSite, Connecting, Invalid, Scheme, UrlForm};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `file:DIR`.
#[derive(Debug)]
pub(crate) struct FileScheme;

impl Scheme for FileScheme {
    fn forms(&self) -> &[UrlForm] {
        const { &[UrlForm::new("file:DIR", "processes of this machine; a crashed holder frees its lock at once")] }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(File::open(directory(url)?)?) as _) })
    }

    /// For `doctor`, which reports an unusable directory as a finding.
    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(File::unchecked(directory(url)?)?) as _) })
    }

    fn on_demand<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        self.connect(url)
    }

    /// Several paths may lead to one directory.
    fn identity(&self, _: &str, name: &str) -> String {
        let same = name.strip_prefix("file:").and_then(|directory| Path::new(directory).canonicalize().ok());
        same.map_or_else(|| name.to_owned(), |path| format!("file:{}", path.display()))
    }

    fn has_passwords(&self) -> bool {
        false
    }

    /// A lock file is never deleted while it may be in use, so the files of a run are in a separate directory.
    fn bench(&self, url: &str, run: &str) -> Result<BenchSite, Invalid> {
        let directory = directory(url)?.join(run);
        Ok(BenchSite::new(format!("file:{}", directory.display())).with_directory(directory))
    }
}

/// `DIR` of `file:DIR`, and of `file:///DIR`.
fn directory(url: &str) -> Result<PathBuf, Invalid> {
    let rest = url.strip_prefix("file:").unwrap_or(url);
    let directory = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            return Err(Invalid::new("file:// is followed by a host, which locks in files do not have: use file:DIR"));
        }
        None => rest,
    };
    if directory.is_empty() {
        return Err(Invalid::new("file: needs a directory, as in file:/run/lock/fencelock"));
    }
    Ok(PathBuf::from(directory))
}
