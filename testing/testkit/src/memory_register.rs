use fencelock_core::register::{Expect, Record, Version};
use fencelock_core::{Answer, BoxFuture, Clock, Key};
use fencelock_register::{Found, Register, WriteReply};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A store with a conditional write, in memory. A version is a hash of the content, as on many stores.
///
/// A clone is another way to the same registers; [`MemoryRegister::front_end`] is one with another clock.
#[derive(Debug, Clone)]
pub struct MemoryRegister {
    registers: Arc<Mutex<HashMap<Key, Content>>>,
    clock: Arc<dyn Clock>,
    /// Times are cut off to it.
    unit: Duration,
    ahead: Duration,
}

#[derive(Debug, Clone)]
struct Content {
    bytes: Vec<u8>,
    modified: u64,
}

impl MemoryRegister {
    /// An empty store with this clock, whose times it cuts off to `unit`.
    pub fn with_clock(clock: Arc<dyn Clock>, unit: Duration) -> Self {
        Self { registers: Arc::default(), clock, unit, ahead: Duration::ZERO }
    }

    /// The same registers behind a front end whose clock is ahead by this time.
    #[must_use]
    pub fn front_end(&self, ahead: Duration) -> Self {
        Self { ahead, ..self.clone() }
    }

    /// Writes anything, like another program.
    pub fn put(&self, key: &Key, bytes: impl Into<Vec<u8>>) {
        let content = Content { bytes: bytes.into(), modified: self.date() };
        self.lock().insert(key.clone(), content);
    }

    /// Deletes a register, which no lock does.
    pub fn delete(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// What is stored.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        self.lock().get(key).map(|content| content.bytes.clone())
    }

    fn date(&self) -> u64 {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let (now, unit) = (self.clock.wall_micros().saturating_add(micros(self.ahead)), micros(self.unit).max(1));
        now / unit * unit
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Content>> {
        self.registers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version(bytes: &[u8]) -> Version {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Version::new(format!("{:016x}", hasher.finish()))
}

impl Register for MemoryRegister {
    fn forget<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, bool> {
        self.delete(key);
        Box::pin(std::future::ready(true))
    }

    fn name(&self) -> String {
        "memory:register".into()
    }

    fn read<'a>(&'a self, key: &'a Key) -> Answer<'a, Found> {
        Box::pin(async move {
            let content = self.lock().get(key).cloned();
            let modified = content.as_ref().map(|content| content.modified);
            let bytes = content.map(|content| (version(&content.bytes), content.bytes));
            Ok(Found { bytes, modified, date: Some(self.date()) })
        })
    }

    fn write_if<'a>(&'a self, key: &'a Key, expect: &'a Expect, bytes: Vec<u8>) -> Answer<'a, WriteReply> {
        Box::pin(async move {
            let (mut registers, date) = (self.lock(), self.date());
            if registers.get(key).map(|content| version(&content.bytes)) != *expect {
                return Ok(WriteReply::Refused { why: String::new() });
            }
            let version = version(&bytes);
            registers.insert(key.clone(), Content { bytes, modified: date });
            Ok(WriteReply::Written { version, date: Some(date) })
        })
    }

    fn list(&self) -> Answer<'_, Vec<Key>> {
        let may_be_held = |content: &Content| Record::may_be_held(content.bytes.len() as u64);
        let registers = self.lock();
        let held = registers.iter().filter(|(_, content)| may_be_held(content)).map(|(key, _)| key.clone()).collect();
        Box::pin(std::future::ready(Ok(held)))
    }
}
