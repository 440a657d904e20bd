use super::schemes::scheme_of;
use fencelock_core::{Backend, ConnectError};
use std::sync::Arc;

/// Connects to the backend of a URL. `memory:` is [`Memory::of_this_process`](super::Memory::of_this_process). The first
/// connection is made before this returns, so a wrong address or password is an immediate error.
///
/// # Errors
/// [`ConnectError::Url`] for an unknown scheme or an invalid part, [`ConnectError::Unknown`] for a server or
/// directory that is unavailable.
///
/// # Cancel safety
/// Dropping the future leaves no connection behind.
pub async fn connect(url: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    scheme_of(url)?.connect(url).await
}

/// Like [`connect`], but connects with the first request: for programs that inspect servers, even if they are
/// unavailable or belong to another set.
///
/// # Errors
/// [`ConnectError::Url`] for an unknown scheme or an invalid part, [`ConnectError::Unknown`] for a directory
/// that is unavailable.
///
/// # Cancel safety
/// Dropping the future leaves no connection behind.
pub async fn lazy(url: &str) -> Result<Arc<dyn Backend>, ConnectError> {
    scheme_of(url)?.lazy(url).await
}

/// Like [`connect`], but connects with the first claim or inspection, so that an unavailable server is
/// waited for as long as the lock. The checks that [`connect`] makes for `redlock://` are then also made.
///
/// # Errors
/// See [`lazy`].
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
    async fn memory_without_a_name_is_shared_by_the_process() {
        let address = |backend: &Arc<dyn Backend>| Arc::as_ptr(backend).cast::<()>();
        let (one, other) = (connect("memory:").await.unwrap(), connect("memory:").await.unwrap());
        assert_eq!((address(&one), one.name()), (address(&other), "memory:".to_owned()));
        let named = connect("memory:name").await.unwrap();
        assert_eq!(address(&named), address(&connect("memory:name").await.unwrap()));
        assert_ne!(address(&named), address(&one));
    }

    #[cfg(feature = "file")]
    #[tokio::test]
    async fn a_relative_directory_is_refused_and_the_absolute_one_is_named() {
        let relative = format!("target-of-a-test-{}", std::process::id());
        // Cargo runs the tests of a package in the directory of the package.
        let absolute = format!("file:{}", std::env::current_dir().unwrap().join(&relative).display());
        let Err(ConnectError::Url(refused)) = connect(&format!("file:{relative}")).await else { panic!("not refused") };
        assert!(refused.to_string().contains(&absolute), "{refused}");
        assert_eq!(connect(&absolute).await.unwrap().name(), absolute);
    }
}
