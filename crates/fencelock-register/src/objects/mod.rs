//! Registers that are objects of S3, Azure Blob Storage or Google Cloud Storage. Credentials come from the environment: the variables
//! `AWS_*`, `AZURE_*` and `GOOGLE_*`, web identity, and the metadata services of the clouds.

mod connector;
mod doctor;
mod location;
mod name;
mod service;

use crate::{Found, Register, RegisterLocks, WriteReply};
use connector::{Answered, Receipt, unknown, words};
use fencelock_core::register::{Expect, Record, StoreTiming, Version};
use fencelock_core::{Answer, BoxFuture, Connecting, Fault, Finding, Invalid, Key, Scheme, Span, Unknown, UrlForm};
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use location::Location;
use object_store::path::Path;
use object_store::{Attribute, Attributes, GetOptions, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion};
use service::Service;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// The objects under a prefix of a bucket.
#[derive(Debug)]
struct Objects {
    name: String,
    location: Location,
    store: Arc<dyn ObjectStore>,
}

/// Many processes may prove a new store at once, and some stores let those that lose a race wait for seconds.
const TIMEOUTS_OF_A_PROOF: u32 = 3;
/// A listing has a request for every thousand objects: those of all keys that were ever used.
const TIMEOUTS_OF_A_LISTING: u32 = 6;
/// Reads of a listing.
const AT_ONCE: usize = 16;

/// A holder gives up a renewal after a fifth of its TTL. One answer of a hundred takes half a second on most stores.
const SHORTEST_TTL: Duration = Duration::from_secs(3);
const ADVISED_TTL: Duration = Duration::from_secs(10);

/// Locks on the object store of this URL. Nothing is sent before the first request.
///
/// # Errors
/// [`Invalid`] if the URL or the environment has an invalid setting.
pub fn connect(url: &str) -> Result<RegisterLocks, Invalid> {
    Ok(Objects::open(url)?.locks())
}

impl Objects {
    fn open(url: &str) -> Result<Arc<Self>, Invalid> {
        let location = Location::parse(url, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))?;
        let (name, store) = (location.name(), location.open()?);
        Ok(Arc::new(Self { name, location, store }))
    }

    fn locks(self: Arc<Self>) -> RegisterLocks {
        let (timing, polls) = (StoreTiming { skew: self.location.skew, ..StoreTiming::default() }, self.location.polls);
        RegisterLocks::new(self).with_timing(timing).with_polls(polls).with_ttls(SHORTEST_TTL, ADVISED_TTL)
    }

    fn path(&self, object: &str) -> Path {
        self.location.prefix.clone().join(object)
    }

    fn version(&self, object: &str, tag: Option<String>, generation: Option<String>) -> Result<Version, Unknown> {
        let version = self.location.service.version(tag, generation).map(Version::new);
        version.ok_or_else(|| self.unsupported(format!("the store tells no version of {object}")))
    }

    fn unsupported(&self, detail: impl Into<String>) -> Unknown {
        Unknown::new(&*self.name, Fault::Unsupported, detail)
    }

    /// The time of the store, if it is trusted.
    fn date(&self, answered: &Answered) -> Option<u64> {
        answered.date.filter(|_| self.location.clock)
    }

    /// The answer to what may take the time of so many requests.
    async fn within<T>(&self, many: u32, request: impl Future<Output = Result<T, Unknown>>) -> Result<T, Unknown> {
        let limit = self.location.timeout * many;
        let late = || Unknown::new(&*self.name, Fault::Timeout, format!("timeout {}", Span(limit)));
        tokio::time::timeout(limit, request).await.unwrap_or_else(|_| Err(late()))
    }

    /// A panic of the library is an error: a file or a server may give it what it does not accept.
    async fn caught<T>(&self, what: &str, request: impl Future<Output = T>) -> Result<T, Unknown> {
        let panicked = |_| Unknown::new(&*self.name, Fault::Panicked, what);
        AssertUnwindSafe(request).catch_unwind().await.map_err(panicked)
    }

    async fn get(&self, object: &str) -> Result<Found, Unknown> {
        let (receipt, mut options) = (Receipt::default(), GetOptions::default());
        options.extensions.insert(receipt.clone());
        let what = format!("reading {object}");
        let got = self.caught(&what, self.store.get_opts(&self.path(object), options)).await?;
        let answered = receipt.get();
        let date = self.date(&answered);
        let got = match got {
            Ok(got) => got,
            Err(error @ object_store::Error::NotFound { .. }) if self.is_object(&error) => {
                return Ok(Found { bytes: None, modified: None, date });
            }
            Err(error) => return Err(unknown(&self.name, &what, &error, &answered)),
        };
        let seconds = u64::try_from(got.meta.last_modified.timestamp()).ok();
        let modified = seconds.filter(|_| self.location.clock).map(|seconds| seconds.saturating_mul(1_000_000));
        let version = self.version(object, got.meta.e_tag.clone(), got.meta.version.clone())?;
        let bytes = if got.meta.size > Record::MAX_BYTES as u64 {
            vec![0; Record::MAX_BYTES + 1]
        } else {
            let broken = |error| unknown(&self.name, "reading", &error, &Answered::unseen());
            got.bytes().await.map_err(broken)?.to_vec()
        };
        Ok(Found { bytes: Some((version, bytes)), modified, date })
    }

    async fn put(&self, object: &str, mode: PutMode, bytes: Vec<u8>) -> Result<WriteReply, Unknown> {
        self.send(object, mode, bytes).await.map(|(reply, _)| reply)
    }

    async fn send(&self, object: &str, mode: PutMode, bytes: Vec<u8>) -> Result<(WriteReply, Answered), Unknown> {
        let (receipt, creates) = (Receipt::default(), matches!(mode, PutMode::Create));
        let mut options = PutOptions::from(mode);
        // Some stores let caches serve what anyone may read.
        options.attributes = Attributes::from_iter([(Attribute::CacheControl, "no-store")]);
        options.extensions.insert(receipt.clone());
        let (what, path) = (format!("writing {object}"), self.path(object));
        let put = self.caught(&what, self.store.put_opts(&path, PutPayload::from(bytes), options)).await?;
        let answered = receipt.get();
        let reply = match (put, answered.status) {
            (Ok(put), _) => {
                let version = self.version(object, put.e_tag, put.version)?;
                WriteReply::Written { version, date: self.date(&answered) }
            }
            // 404: what was to be replaced does not exist.
            (Err(error), status) if matches!(status, 409 | 412) || status == 404 && !creates => {
                WriteReply::Refused { why: format!("{status} {}", words(&error)) }
            }
            (Err(error), _) => return Err(unknown(&self.name, &what, &error, &answered)),
        };
        Ok((reply, answered))
    }

    /// Whether what is missing is the object, and not the bucket, the user, or a store at this address. The server that stands for
    /// Google's in tests names nothing.
    fn is_object(&self, error: &object_store::Error) -> bool {
        let text = error.to_string();
        ["<Code>NoSuchKey<", "<Code>BlobNotFound<"].iter().any(|code| text.contains(code))
            || self.location.service == Service::Google && text.trim_end().ends_with(": Not Found")
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

/// Each store compares one of the two.
fn update(version: &Version) -> PutMode {
    let text = Some(version.as_str().to_owned());
    PutMode::Update(UpdateVersion { e_tag: text.clone(), version: text })
}

impl Register for Objects {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn read<'a>(&'a self, key: &'a Key) -> Answer<'a, Found> {
        Box::pin(async move { self.within(1, self.get(&name::encode(key))).await })
    }

    fn write_if<'a>(&'a self, key: &'a Key, expect: &'a Expect, bytes: Vec<u8>) -> Answer<'a, WriteReply> {
        Box::pin(async move {
            let mode = expect.as_ref().map_or(PutMode::Create, update);
            self.within(1, self.put(&name::encode(key), mode, bytes)).await
        })
    }

    fn prove(&self) -> Answer<'_, ()> {
        let proof = self.within(TIMEOUTS_OF_A_PROOF, self.see_refusals());
        Box::pin(async move { if self.location.verify { proof.await } else { Ok(()) } })
    }

    fn pause(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(span))
    }

    fn list(&self) -> Answer<'_, Vec<Key>> {
        Box::pin(self.within(TIMEOUTS_OF_A_LISTING, async move {
            let prefix = Some(&self.location.prefix).filter(|prefix| !prefix.is_root());
            let found = self.caught("listing", self.store.list_with_delimiter(prefix)).await?;
            let found = found.map_err(|error| unknown(&self.name, "listing", &error, &Answered::unseen()))?;
            let held = found.objects.into_iter().filter(|object| Record::may_be_held(object.size));
            let names: Vec<_> = held.filter_map(|object| object.location.filename().map(str::to_owned)).collect();
            let keys = stream::iter(names).map(|name| async move { self.key_of(&name).await });
            keys.buffered(AT_ONCE).try_filter_map(|key| std::future::ready(Ok(key))).try_collect().await
        }))
    }

    fn forget<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.remove(&name::encode(key)).await.is_ok() })
    }

    fn try_out(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(self.try_conditions())
    }
}

/// `s3://`, `az://` and `gs://`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ObjectStores;

impl Scheme for ObjectStores {
    fn forms(&self) -> &[UrlForm] {
        const { &[Service::S3.form(), Service::Azure.form(), Service::Google.form()] }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let objects = Objects::open(url)?;
            // A wrong address, bucket or credential is an error here.
            objects.check().await?;
            Ok(Arc::new(objects.locks()) as _)
        })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Objects::open(url)?.locks()) as _) })
    }
}

// The proof that a store refuses what it must refuse, before the first write of a process and again while it claims: a store, or a
// gateway before it, that ignores conditions has no locks. That it executes what it must execute is proved by the claim itself.

const PROOF: &str = ".fencelock";
/// What each content begins with. Anything else belongs to another program.
const OURS: &str = "fencelock ";
const REFUSED: &str = "fencelock 1\nEvery client tries to replace this object, and is refused.\n";
const LIE: &str = "fencelock 1\nthis store ignores conditions\n";
/// So often may other clients write the object, which they do only if it is not there, or is a lie.
const ROUNDS: usize = 8;

impl Objects {
    /// Checks the address and the right to read.
    async fn check(&self) -> Result<(), Unknown> {
        self.within(1, self.proof()).await.map(drop)
    }

    async fn proof(&self) -> Result<Option<(Version, Vec<u8>)>, Unknown> {
        let found = self.get(PROOF).await?.bytes;
        match &found {
            Some((_, bytes)) if !bytes.starts_with(OURS.as_bytes()) => {
                Err(self.unsupported(format!("{PROOF} is of another program: use another prefix")))
            }
            _ => Ok(found),
        }
    }

    /// Tries two writes that must be refused, and reads whether they were. No content comes back, so another client that does the
    /// same on a store that executes them hides nothing.
    async fn see_refusals(&self) -> Result<(), Unknown> {
        let failed = |error: getrandom::Error| Unknown::new(&*self.name, Fault::Other, error.to_string());
        let random = || getrandom::u64().map_err(failed);
        let (lie, mut before) = (format!("{LIE}{:016x}\n", random()?).into_bytes(), None);
        for _ in 0..ROUNDS {
            let mode = match self.proof().await? {
                None => PutMode::Create,
                Some((version, _)) if before.as_ref() == Some(&version) => return Ok(()),
                Some((_, bytes)) if bytes == lie => {
                    return Err(self.unsupported("it executes a write that it refuses"));
                }
                // Another path to the store ignores conditions, or has done so.
                Some((version, bytes)) if bytes.starts_with(LIE.as_bytes()) => update(&version),
                Some((version, _)) => {
                    self.lie(&lie).await?;
                    before = Some(version);
                    continue;
                }
            };
            self.put(PROOF, mode, format!("{REFUSED}{:016x}\n", random()?).into_bytes()).await?;
        }
        Err(Unknown::new(&*self.name, Fault::Busy, format!("other clients write {PROOF} too often")))
    }

    async fn lie(&self, lie: &[u8]) -> Result<(), Unknown> {
        let other = update(&Version::new(self.location.service.other_version()));
        for (mode, what) in [(PutMode::Create, "an object that exists"), (other, "another version of an object")] {
            if let WriteReply::Written { .. } = self.put(PROOF, mode, lie.to_vec()).await? {
                let detail = format!("it, or a proxy before it, ignores the condition of a write, and replaces {what}");
                return Err(self.unsupported(detail));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_library_is_an_error_that_names_what_was_done() {
        let objects = Objects::open("s3://b").unwrap();
        let request = async { panic!("s3cret") };
        let panicked: Result<(), _> = objects.caught("reading k.lock", request).now_or_never().unwrap();
        let text = "s3://b: a library has panicked (reading k.lock)";
        assert_eq!(panicked.map_err(|unknown| unknown.to_string()), Err(text.into()));
    }
}
