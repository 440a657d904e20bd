//! The backends where locks are stored. Each implements [`Backend`].
//!
//! The scheme of a URL selects the backend: [`connect`]. Other crates add schemes with [`register`].
//!
//! | backend | for | what frees the locks of a crashed holder | order of waiters |
//! |---|---|---|---|
//! | [`Memory`] | tasks and threads of one process | dropping the guard; with leases, their TTL | first come, first served |
//! | `File` | processes of one machine | the kernel | the first claim after a release |
//! | `Redis` | machines that share one Redis server, or a master with sentinels | the TTL of the lease | first come, first served |
//! | a cluster | machines that share a Redis Cluster | the TTL of the lease | first come, first served |
//! | `Quorum` | machines that share several independent Redis servers | the TTL of the lease | the first claim after a release |
//! | `Postgres` | machines that share a PostgreSQL database | the TTL of the lease | first come, first served |
//! | objects | machines that share a bucket of S3, Azure or Google | the TTL of the lease, and some seconds | the first claim after a release |
//! | Leases | machines that share a Kubernetes cluster | the TTL of the lease, and some seconds | the first claim after a release |
//!
//! # Cargo features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `file` | on | `file:`; Unix only |
//! | `redis` | on | one Redis server, Sentinel, Cluster and a quorum, with TLS |
//! | `redis-plain` | off | the same without TLS |
//! | `postgres` | off | a PostgreSQL database |
//! | `object-store` | off | a bucket of S3, Azure or Google |
//! | `kube` | off | the Leases of Kubernetes |

#[cfg(all(feature = "file", unix))]
mod file;
mod memory;
mod schemes;
mod tokio_clock;

use fencelock_core::Backend;
pub use fencelock_core::{
    BootClock, Change, ConnectError, Connecting, ManualClock, RegisteredNode, Registering, Scheme, UrlForm,
};
#[cfg(feature = "postgres")]
pub use fencelock_postgres::Postgres;
#[cfg(feature = "redis-plain")]
pub use fencelock_redis::{Quorum, Redis, Server};
#[cfg(all(feature = "file", unix))]
pub use file::File;
#[cfg(all(feature = "file", unix))]
pub use file::scheme::{directory as file_directory, url_of as file_url};
pub use memory::Memory;
pub use schemes::{register, scheme_of, schemes};
use std::sync::Arc;
pub use tokio_clock::TokioClock;

#[cfg(all(feature = "file", not(unix)))]
compile_error!(
    "the feature `file` of fencelock needs Unix: it locks with flock(2). Build with default-features = false."
);

/// Connects to the backend of a URL. `memory:` is [`Memory::of_this_process`](Memory::of_this_process). The first
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

/// Registers the servers of a `redlock://` URL, or of a `redis://` URL with `quarantine=on`, as this set: initially, and
/// after each change of the list or of `max_ttl=`.
///
/// Every server stores its set. A new, restarted or flushed server starts its quarantine, unless
/// `trust_empty` asserts that no server has lost data: that is true only if no lock was ever acquired from this
/// set, or all of them have ended. Repeating the call changes nothing.
///
/// # Errors
/// [`ConnectError::Url`] for a backend without a quarantine. [`ConnectError::Unknown`] if a server does not answer; then
/// nothing was written. If one fails after that, the cause reports it, and the call can be repeated.
///
/// # Cancel safety
/// Some servers may be registered and others not; repeating the call is harmless.
pub async fn init(url: &str, trust_empty: bool) -> Result<Vec<RegisteredNode>, ConnectError> {
    scheme_of(url)?.init(url, trust_empty).await
}

/// The Redis servers that a URL names; none if the backend has none. The masters of a cluster, and that of sentinels, are asked for;
/// this blocks.
///
/// # Errors
/// [`Invalid`](crate::Invalid) for a URL that cannot be used, and if the servers cannot be found.
#[cfg(feature = "redis-plain")]
pub fn servers(url: &str) -> Result<Vec<Server>, fencelock_core::Invalid> {
    scheme_of(url)?;
    fencelock_redis::servers(url)
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

    #[cfg(feature = "redis-plain")]
    #[test]
    fn a_url_names_the_servers_of_its_scheme() {
        let names = |url| servers(url).unwrap().iter().map(|server| server.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(names("redis://u:p@h/3?prefix=x"), ["redis://h:6379/3"]);
        assert_eq!(names("redlock://a,b:7,c").len(), 3);
        assert_eq!(names("memory:"), [""; 0]);
        assert!(servers("redis://h?nonsense=1").is_err() && servers("nowhere:x").is_err());
    }
}
