use crate::Place;
use std::fmt;

/// A name and a way to open a [`Place`]: each case opens its own.
pub struct Site {
    name: &'static str,
    open: Box<dyn Fn() -> Result<Box<dyn Place>, String> + Send + Sync>,
}

impl Site {
    /// `open` is called once for each case; places of one site may well share a server.
    ///
    /// Its error says why there is no such place on this machine, and every case is reported as ignored with it. Where
    /// the place must be there, `open` panics instead, and every case fails.
    pub fn new(name: &'static str, open: impl Fn() -> Result<Box<dyn Place>, String> + Send + Sync + 'static) -> Self {
        Self { name, open: Box::new(open) }
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Place>, String> {
        (self.open)()
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("name", &self.name).finish_non_exhaustive()
    }
}
