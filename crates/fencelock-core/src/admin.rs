use crate::{Answer, Backend, BackendReport, BoxFuture, Eviction, Fault, Finding, Holding, Key, Unknown};

/// What operators need of a backend, beside its locks: [`Backend::admin`].
pub trait Admin: Backend {
    /// The held keys, in any order. A key that is acquired or released concurrently may or may not be included.
    fn list(&self) -> Answer<'_, Vec<Holding>>;

    /// Ends the holds that `seen` lists, if none has ended since; renewals do not count. `seen` may list one of several shared
    /// holders; then the others keep the key. The listeners of this object get [`Event::Changed`](crate::Event::Changed).
    fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction>;

    /// Tries what a lock does, and takes it back: [`crate::Trial`] with a key that no program uses, or with `key`. It returns findings,
    /// also if it was not tried. Whatever is written is removed, and expires within 5 s if this program is killed. Nothing else is
    /// written: no directory, and no marker of a server that may have lost its locks.
    fn try_out<'a>(&'a self, key: Option<&'a Key>) -> BoxFuture<'a, Vec<Finding>> {
        let _ = key;
        Box::pin(std::future::ready(not_tried()))
    }

    /// Checks what the guarantees of the backend depend on: what it consists of, what works there, and a [`Finding`] for each check.
    /// It only reads.
    fn diagnose(&self) -> BoxFuture<'_, BackendReport>;
}

fn not_tried() -> Vec<Finding> {
    vec![Finding::not_tried("this backend does not support a trial", "")]
}

/// [`Admin`] for callers: a backend without it refuses.
impl dyn Backend + '_ {
    /// [`Admin::list`], or an error.
    pub fn list(&self) -> Answer<'_, Vec<Holding>> {
        let Some(admin) = self.admin() else {
            let refusal = Unknown::new(self.name(), Fault::Unsupported, "this backend does not list its locks");
            return Box::pin(std::future::ready(Err(refusal)));
        };
        admin.list()
    }

    /// [`Admin::evict`], or [`Eviction::Refused`].
    pub fn evict<'a>(&'a self, seen: &'a Holding) -> Answer<'a, Eviction> {
        let Some(admin) = self.admin() else {
            let text = "this backend cannot end the hold of another client: stop its process".to_owned();
            return Box::pin(std::future::ready(Ok(Eviction::Refused(text))));
        };
        admin.evict(seen)
    }

    /// [`Admin::try_out`], or a finding that nothing was tried.
    pub fn try_out<'a>(&'a self, key: Option<&'a Key>) -> BoxFuture<'a, Vec<Finding>> {
        match self.admin() {
            Some(admin) => admin.try_out(key),
            None => Box::pin(std::future::ready(not_tried())),
        }
    }

    /// [`Admin::diagnose`], or a report without servers and findings.
    pub fn diagnose(&self) -> BoxFuture<'_, BackendReport> {
        match self.admin() {
            Some(admin) => admin.diagnose(),
            None => Box::pin(std::future::ready(BackendReport::default())),
        }
    }
}
