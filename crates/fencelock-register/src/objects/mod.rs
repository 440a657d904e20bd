//! Registers that are objects of a store that speaks S3. Credentials come from the environment: `AWS_ACCESS_KEY_ID` and the others,
//! web identity, and the metadata services of AWS.

mod connector;
mod location;
mod name;
mod scheme;

pub use scheme::ObjectStores;

use crate::{Found, Register, RegisterLocks, WriteReply};
use connector::{Answered, Slot};
use fencelock_core::register::{Expect, Record, Settings, Version};
use fencelock_core::{Answer, Fault, Invalid, Key, Span, Unknown};
use futures_util::TryStreamExt;
use location::Location;
use object_store::path::Path;
use object_store::{Attribute, Attributes, GetOptions, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// The objects under a prefix of a bucket.
#[derive(Debug)]
struct Objects {
    name: String,
    location: Location,
    store: Arc<dyn ObjectStore>,
    /// The store has refused what it must refuse.
    proved: OnceCell<()>,
}

/// A request, with the first ones for credentials, has an answer within this time, or none.
const LIMIT: Duration = Duration::from_secs(10);

/// The object with the proof that a store refuses. Its content is that of this version of the proof.
const PROOF: &str = ".fencelock";
const PROVED: &str =
    "fencelock 1\nThis store has refused to create an object that exists, and to replace one of another version.\n";

/// Locks on the object store of this URL. Nothing is sent before the first request.
///
/// # Errors
/// [`Invalid`] if the URL or the environment has an invalid setting.
pub fn connect(url: &str) -> Result<RegisterLocks, Invalid> {
    let location = Location::parse(url)?;
    let (settings, polls) = (Settings { skew: location.skew, ..Settings::default() }, location.polls());
    let (name, store) = (location.name(), location.open()?);
    let objects = Objects { name, location, store, proved: OnceCell::new() };
    Ok(RegisterLocks::new(Arc::new(objects)).with_settings(settings).with_polls(polls))
}

impl Objects {
    fn path(&self, object: &str) -> Path {
        let prefix = &self.location.prefix;
        // Both parts were checked, and contain nothing that is encoded again.
        Path::from_iter(prefix.split('/').filter(|part| !part.is_empty()).chain([object]))
    }

    fn version(&self, tag: Option<String>) -> Result<Version, Unknown> {
        tag.map(Version::new).ok_or_else(|| self.unsupported("the store tells no version of an object"))
    }

    fn unsupported(&self, detail: impl Into<String>) -> Unknown {
        Unknown::new(&*self.name, Fault::Unsupported, detail)
    }

    /// The time of the store, if it is trusted.
    fn date(&self, answered: Answered) -> Option<u64> {
        answered.date.filter(|_| self.location.clock)
    }

    async fn within<T>(&self, request: impl Future<Output = Result<T, Unknown>>) -> Result<T, Unknown> {
        let late = || Unknown::new(&*self.name, Fault::Timeout, format!("timeout {}", Span(LIMIT)));
        tokio::time::timeout(LIMIT, request).await.unwrap_or_else(|_| Err(late()))
    }

    fn unknown(&self, error: &object_store::Error, status: u16) -> Unknown {
        let fault = match status {
            401 | 403 => Fault::Denied,
            301 | 307 | 308 | 404 => Fault::Misconfigured,
            408 => Fault::Timeout,
            429 | 500..=599 => Fault::Busy,
            0 => Fault::Unreachable,
            _ => Fault::Other,
        };
        Unknown::new(&*self.name, fault, error.to_string())
    }

    async fn get(&self, object: &str) -> Result<Found, Unknown> {
        let (slot, mut options) = (Slot::default(), GetOptions::default());
        options.extensions.insert(slot.clone());
        let got = self.store.get_opts(&self.path(object), options).await;
        let answered = slot.get();
        let date = self.date(answered);
        let got = match got {
            Ok(got) => got,
            Err(error @ object_store::Error::NotFound { .. }) if !is_bucket(&error) => {
                return Ok(Found { bytes: None, modified: None, date });
            }
            Err(error) => return Err(self.unknown(&error, answered.status)),
        };
        let seconds = u64::try_from(got.meta.last_modified.timestamp()).ok();
        let modified = seconds.filter(|_| self.location.clock).map(|seconds| seconds.saturating_mul(1_000_000));
        let version = self.version(got.meta.e_tag.clone())?;
        let bytes = if got.meta.size > Record::MAX_BYTES as u64 {
            vec![0; Record::MAX_BYTES + 1]
        } else {
            got.bytes().await.map_err(|error| self.unknown(&error, 0))?.to_vec()
        };
        Ok(Found { bytes: Some((version, bytes)), modified, date })
    }

    async fn put(&self, object: &str, mode: PutMode, bytes: Vec<u8>) -> Result<WriteReply, Unknown> {
        let (slot, creates) = (Slot::default(), matches!(mode, PutMode::Create));
        let mut options = PutOptions::from(mode);
        // Some stores let caches serve what anyone may read.
        options.attributes = Attributes::from_iter([(Attribute::CacheControl, "no-store")]);
        options.extensions.insert(slot.clone());
        let put = self.store.put_opts(&self.path(object), PutPayload::from(bytes), options).await;
        let answered = slot.get();
        match (put, answered.status) {
            (Ok(put), _) => Ok(WriteReply::Written { version: self.version(put.e_tag)?, date: self.date(answered) }),
            (Err(_), 409 | 412) => Ok(WriteReply::Refused),
            // What was to be replaced does not exist.
            (Err(_), 404) if !creates => Ok(WriteReply::Refused),
            (Err(error), status) => Err(self.unknown(&error, status)),
        }
    }

    /// Before the first write of a process: the store refuses what it must refuse. A store that ignores conditions has no locks.
    async fn prove(&self) -> Result<(), Unknown> {
        let found = self.get(PROOF).await?;
        let current = match found.bytes {
            Some((_, bytes)) if bytes == PROVED.as_bytes() => return Ok(()),
            Some((version, _)) => version,
            None => match self.put(PROOF, PutMode::Create, b"fencelock 1\nnot yet\n".to_vec()).await? {
                WriteReply::Written { version, .. } => version,
                // Another client proves it.
                WriteReply::Refused => return Ok(()),
            },
        };
        let other = update(&Version::new("\"00000000000000000000000000000000\""));
        for (mode, what) in [(PutMode::Create, "an object that exists"), (other, "another version of an object")] {
            if self.put(PROOF, mode, b"fencelock 1\nthis store ignores conditions\n".to_vec()).await?
                != WriteReply::Refused
            {
                let detail = format!("it replaces {what}: it ignores the condition of a write, so it cannot lock");
                return Err(self.unsupported(detail));
            }
        }
        self.put(PROOF, update(&current), PROVED.into()).await.map(|_| ())
    }

    /// The key of an object, also if its name is a hash.
    async fn key_of(&self, object: &str) -> Result<Option<Key>, Unknown> {
        match name::decode(object) {
            None => Ok(None),
            Some(Ok(key)) => Ok(Some(key)),
            Some(Err(())) => {
                let bytes = self.get(object).await?.bytes.map(|(_, bytes)| bytes).unwrap_or_default();
                Ok(Record::key_of(&bytes).filter(|key| name::encode(key) == object))
            }
        }
    }
}

fn update(version: &Version) -> PutMode {
    PutMode::Update(UpdateVersion { e_tag: Some(version.as_str().to_owned()), version: None })
}

/// Whether what is missing is the bucket, and not the object.
fn is_bucket(error: &object_store::Error) -> bool {
    error.to_string().contains("NoSuchBucket")
}

impl Register for Objects {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn read<'a>(&'a self, key: &'a Key) -> Answer<'a, Found> {
        Box::pin(async move { self.within(self.get(&name::encode(key))).await })
    }

    fn write_if<'a>(&'a self, key: &'a Key, expect: &'a Expect, bytes: Vec<u8>) -> Answer<'a, WriteReply> {
        Box::pin(async move {
            if self.location.verify {
                self.within(self.proved.get_or_try_init(|| self.prove())).await?;
            }
            let mode = expect.as_ref().map_or(PutMode::Create, update);
            self.within(self.put(&name::encode(key), mode, bytes)).await
        })
    }

    fn list(&self) -> Answer<'_, Vec<Key>> {
        Box::pin(self.within(async move {
            let prefix = Path::from_iter(self.location.prefix.split('/').filter(|part| !part.is_empty()));
            let prefix = Some(&prefix).filter(|prefix| !prefix.as_ref().is_empty());
            let found: Vec<_> = self.store.list(prefix).try_collect().await.map_err(|error| self.unknown(&error, 0))?;
            let mut keys = Vec::new();
            for object in found.iter().filter(|object| Record::may_be_held(object.size)) {
                let name = object.location.filename().unwrap_or_default();
                if object.location == self.path(name) {
                    keys.extend(self.key_of(name).await?);
                }
            }
            Ok(keys)
        }))
    }
}
