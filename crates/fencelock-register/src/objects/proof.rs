//! The proof that a store refuses what it must refuse, before the first write of a process: a store that ignores conditions has no
//! locks. It is kept in an object, so that most processes only read it.

use super::{Objects, update};
use crate::WriteReply;
use fencelock_core::Unknown;
use fencelock_core::register::Version;
use object_store::PutMode;

const PROOF: &str = ".fencelock";
/// What each content begins with. Anything else belongs to another program.
const OURS: &str = "fencelock ";
/// The content is that of this version of the proof.
const PROVED: &str =
    "fencelock 1\nThis store has refused to create an object that exists, and to replace one of another version.\n";

impl Objects {
    /// Checks the address and the right to read, and whether the store is proved.
    pub(super) async fn check(&self) -> Result<(), Unknown> {
        if let Some((_, true)) = self.within(self.proof()).await? {
            // Another claim may have read it, too.
            let _ = self.proved.set(());
        }
        Ok(())
    }

    async fn proof(&self) -> Result<Option<(Version, bool)>, Unknown> {
        let Some((version, bytes)) = self.get(PROOF).await?.bytes else { return Ok(None) };
        if !bytes.starts_with(OURS.as_bytes()) {
            return Err(self.unsupported(format!("{PROOF} is of another program: use another prefix")));
        }
        Ok(Some((version, bytes == PROVED.as_bytes())))
    }

    pub(super) async fn prove(&self) -> Result<(), Unknown> {
        let current = match self.proof().await? {
            Some((_, true)) => return Ok(()),
            Some((version, false)) => Some(version),
            None => match self.put(PROOF, PutMode::Create, b"fencelock 1\nnot yet\n".to_vec()).await? {
                WriteReply::Written { version, .. } => Some(version),
                // Another client proves it at the same time.
                WriteReply::Refused => None,
            },
        };
        let other = update(&Version::new(self.location.service.other_version()));
        for (mode, what) in [(PutMode::Create, "an object that exists"), (other, "another version of an object")] {
            let lie = b"fencelock 1\nthis store ignores conditions\n".to_vec();
            if self.put(PROOF, mode, lie).await? != WriteReply::Refused {
                let detail = format!("it replaces {what}: it ignores the condition of a write, so it cannot lock");
                return Err(self.unsupported(detail));
            }
        }
        if let Some(current) = current {
            self.put(PROOF, update(&current), PROVED.into()).await?;
        }
        Ok(())
    }
}
