use crate::Fixture;
use std::fmt;

/// A name and a way to open a [`Fixture`]: each case opens its own.
pub struct FixtureFactory {
    name: &'static str,
    open: Box<dyn Fn() -> Result<Box<dyn Fixture>, String> + Send + Sync>,
}

impl FixtureFactory {
    /// `open` is called once for each case. The fixtures of one factory may share a server.
    ///
    /// An error gives the reason why the fixture is not available on this machine; every case is then reported as ignored.
    /// If the fixture must be available, `open` panics, and every case fails.
    pub fn new(
        name: &'static str,
        open: impl Fn() -> Result<Box<dyn Fixture>, String> + Send + Sync + 'static,
    ) -> Self {
        Self { name, open: Box::new(open) }
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Fixture>, String> {
        (self.open)()
    }
}

impl fmt::Debug for FixtureFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixtureFactory").field("name", &self.name).finish_non_exhaustive()
    }
}
