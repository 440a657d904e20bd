use super::schemes::scheme_of;
use fencelock_core::{Backend, ConnectError};
use std::sync::Arc;

/// Makes the backend that a URL names; `memory:` is [`Memory::of_this_process`](super::Memory::of_this_process), and a relative
/// path after `file:` begins at the present working directory. The first connection is made before it returns, so a wrong
/// address or password is known at once.
///
/// # Errors
/// [`ConnectError::Url`] for an unknown scheme or a part that cannot be used, [`ConnectError::Unknown`] for a server or
/// directory that does not answer.
///
/// # Cancel safety
/// Dropping the future leaves no connection behind.
pub async fn connect(url: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    scheme_of(url)?.connect(url).await
}

/// As [`connect`], but servers are connected to with the first request: for whoever wants to look at them, also if they do
/// not answer or belong to others.
///
/// # Errors
/// [`ConnectError::Url`] for an unknown scheme or a part that cannot be used, [`ConnectError::Unknown`] for a directory
/// that does not answer.
///
/// # Cancel safety
/// Dropping the future leaves no connection behind.
pub async fn lazy(url: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    scheme_of(url)?.lazy(url).await
}

/// As [`connect`], but servers are connected to with the first claim or look, so that one that is away, or starts later, is
/// waited for as long as the lock. What [`connect`] checks of the servers of a `redlock://` is checked then too.
///
/// # Errors
/// As [`lazy`].
///
/// # Cancel safety
/// Dropping the future leaves no connection behind.
pub async fn on_demand(url: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    scheme_of(url)?.on_demand(url).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_without_a_name_is_one_place_of_the_process() {
        let address = |backend: &Arc<dyn Backend>| Arc::as_ptr(backend).cast::<()>();
        let (one, other) = (connect("memory:").await.unwrap(), connect("memory:").await.unwrap());
        assert_eq!((address(&one), one.name()), (address(&other), "memory:".to_owned()));
        let named = connect("memory:name").await.unwrap();
        assert_eq!(address(&named), address(&connect("memory:name").await.unwrap()));
        assert_ne!(address(&named), address(&one));
    }

    #[cfg(feature = "file")]
    #[tokio::test]
    async fn a_relative_directory_is_named_by_its_absolute_path() {
        // The tests of a package run in its own directory.
        let relative = format!("target-of-a-test-{}", std::process::id());
        let absolute = std::env::current_dir().unwrap().join(&relative);
        for url in [format!("file:{relative}"), format!("file:./{relative}"), format!("file:{}", absolute.display())] {
            let name = connect(&url).await.map(|backend| backend.name());
            std::fs::remove_dir(&absolute).unwrap();
            assert_eq!(name, Ok(format!("file:{}", absolute.display())), "{url}");
        }
    }
}
