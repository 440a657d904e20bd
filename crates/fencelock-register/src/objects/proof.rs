//! The proof that a store refuses what it must refuse, before the first write of a process and again while it claims: a store, or a
//! gateway before it, that ignores conditions has no locks. That it executes what it must execute is proved by the claim itself.

use super::{Objects, update};
use crate::WriteReply;
use fencelock_core::register::Version;
use fencelock_core::{Fault, Unknown};
use object_store::PutMode;

const PROOF: &str = ".fencelock";
/// What each content begins with. Anything else belongs to another program.
const OURS: &str = "fencelock ";
const REFUSED: &str = "fencelock 1\nEvery client tries to replace this object, and is refused.\n";
const LIE: &str = "fencelock 1\nthis store ignores conditions\n";
/// So often may other clients write the object, which they do only if it is not there, or is a lie.
const ROUNDS: usize = 8;

impl Objects {
    /// Checks the address and the right to read.
    pub(super) async fn check(&self) -> Result<(), Unknown> {
        self.within(self.proof()).await.map(drop)
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
    pub(super) async fn see_refusals(&self) -> Result<(), Unknown> {
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
