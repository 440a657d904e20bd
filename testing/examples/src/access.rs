//! The access to the protected data, with or without a lock.

use crate::Failure;
use fencelock::{Client, Error, Guard};
use std::path::Path;
use std::time::Duration;

/// The value of `--lock` for no lock.
const NONE: &str = "none";

/// The default lock: files next to the database of the example.
pub fn default_url(dir: &Path) -> String {
    format!("file:{}", dir.join("locks").display())
}

/// How a process accesses the data.
#[derive(Debug)]
pub enum Access {
    /// Without a lock.
    Open,
    /// With a lock.
    Locked(Client),
}

impl Access {
    /// `none`, or the URL of a backend.
    ///
    /// # Errors
    /// Errors of [`Client::connect`], and a backend that other processes do not see.
    pub async fn of(lock: &str) -> Result<Self, Failure> {
        if lock == NONE {
            return Ok(Self::Open);
        }
        let client = Client::connect(lock).await?;
        if !client.capabilities().cross_process {
            return Err(format!(
                "the example uses several processes, but {} exists only within one process",
                client.name()
            )
            .into());
        }
        Ok(Self::Locked(client))
    }

    /// Waits without limit. `None` means that there is no lock.
    ///
    /// # Errors
    /// Errors of [`fencelock::Lock::acquire`].
    pub async fn enter(&self, key: &str, ttl: Duration) -> Result<Option<Guard>, Failure> {
        match self {
            Self::Open => Ok(None),
            Self::Locked(client) => Ok(Some(client.lock(key).ttl(ttl).await?)),
        }
    }

    /// Whether a holder that sleeps too long loses the lock.
    pub fn expires(&self) -> bool {
        matches!(self, Self::Locked(client) if client.capabilities().expires)
    }
}

/// Releases the lock. Returns the reason if the lock was lost.
///
/// # Errors
/// Errors of [`Guard::release`].
pub async fn leave(guard: Option<Guard>) -> Result<Option<String>, Failure> {
    let Some(guard) = guard else { return Ok(None) };
    match guard.release().await {
        Err(Error::Lost { reason, .. }) => Ok(Some(reason.to_string())),
        released => Ok(released.map(|()| None)?),
    }
}
