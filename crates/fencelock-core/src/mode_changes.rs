use crate::{Answer, Backend, Downgrade, Fault, Key, Renewal, Resize, Unknown};

/// Changes of a hold in one step: from exclusive to shared, and to another limit. [`Backend::mode_changes`].
pub trait ModeChanges: Backend {
    /// Turns an exclusive hold into a shared one with a new fencing token, without a moment in which the key is free. Shared
    /// claims at the head of the queue are granted with it. The holder must treat its hold as shared from the moment at which it
    /// sends the request, and use the old token for nothing after that.
    fn downgrade<'a>(&'a self, renewal: &'a Renewal) -> Answer<'a, Downgrade>;

    /// Changes the limit of a semaphore that is in use, in one step. All holders stay, even if they use more permits than the new
    /// limit: then nothing is granted until enough are returned. Where waiters form a queue, they wait for permits of the resized
    /// semaphore from then on, and those that now fit are granted; a waiter that wants more permits than the new limit
    /// leaves the queue. A new claim with the old limit is refused like any other limit. Nothing but a semaphore that is
    /// in use is changed. A backend without semaphores refuses, as by default.
    fn resize<'a>(&'a self, key: &'a Key, limit: u32) -> Answer<'a, Resize> {
        let _ = (key, limit);
        refused(self.name(), "no semaphore is resized here")
    }
}

/// [`ModeChanges`] for callers: a backend without it refuses.
impl dyn Backend + '_ {
    /// [`ModeChanges::downgrade`], or an error.
    pub fn downgrade<'a>(&'a self, renewal: &'a Renewal) -> Answer<'a, Downgrade> {
        match self.mode_changes() {
            Some(changes) => changes.downgrade(renewal),
            None => refused(self.name(), "no lock is downgraded here"),
        }
    }

    /// [`ModeChanges::resize`], or an error.
    pub fn resize<'a>(&'a self, key: &'a Key, limit: u32) -> Answer<'a, Resize> {
        match self.mode_changes() {
            Some(changes) => changes.resize(key, limit),
            None => refused(self.name(), "no semaphore is resized here"),
        }
    }
}

fn refused<'a, T: Send + 'a>(backend: String, why: &str) -> Answer<'a, T> {
    Box::pin(std::future::ready(Err(Unknown::new(backend, Fault::Unsupported, why))))
}
