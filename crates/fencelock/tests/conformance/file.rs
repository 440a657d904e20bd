use fencelock::backends::File;
use fencelock_conformance::{Fixture, FixtureFactory};
use fencelock_core::{Backend, BoxFuture};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// One directory for all cases; each backend opens it anew.
pub(crate) fn factory() -> FixtureFactory {
    let directory = Arc::new(TempDir::new().expect("a temporary directory"));
    FixtureFactory::new("file", move || {
        Ok(Box::new(InFiles { path: directory.path().to_owned(), _directory: Arc::clone(&directory) }))
    })
}

struct InFiles {
    path: PathBuf,
    _directory: Arc<TempDir>,
}

impl Fixture for InFiles {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async {
            let file: Arc<dyn Backend> = Arc::new(File::open(&self.path).expect("a directory to lock in"));
            file
        })
    }
}
