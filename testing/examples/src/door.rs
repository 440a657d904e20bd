//! The door to what is protected: locked, or open to everybody.

use crate::Failure;
use fencelock::{Client, Guard, Released};
use std::path::Path;
use std::time::Duration;

/// What `--lock` says for "no lock".
const NONE: &str = "none";

/// Where the lock lives when nothing else is said: in files beside the story's database.
pub fn default_url(dir: &Path) -> String {
    format!("file:{}", dir.join("locks").display())
}

/// How one process gets in.
#[derive(Debug)]
pub enum Door {
    /// Everybody may enter at any time.
    Open,
    /// One at a time.
    Locked(Client),
}

impl Door {
    /// `none`, or the URL of a lock's home.
    ///
    /// # Errors
    /// Those of [`Client::connect`], and a home that other processes do not see.
    pub async fn of(lock: &str) -> Result<Self, Failure> {
        if lock == NONE {
            return Ok(Self::Open);
        }
        let client = Client::connect(lock).await?;
        if !client.capabilities().cross_process {
            return Err(
                format!("the buyers are processes, and no other process sees locks in {}", client.name()).into()
            );
        }
        Ok(Self::Locked(client))
    }

    /// Waits for its turn, however long that takes. `None` means that there is no lock.
    ///
    /// # Errors
    /// Those of [`fencelock::Lock::acquire`].
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

/// Goes out again. Says how the lock was lost, if it was.
///
/// # Errors
/// Those of [`Guard::release`].
pub async fn leave(guard: Option<Guard>) -> Result<Option<String>, Failure> {
    let Some(guard) = guard else { return Ok(None) };
    Ok(match guard.release().await? {
        Released::Released => None,
        Released::AlreadyLost { why } => Some(why.to_string()),
    })
}
