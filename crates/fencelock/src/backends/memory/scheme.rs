use super::Memory;
use fencelock_core::{Connecting, Scheme, UrlForm};

/// `memory:` and `memory:NAME`.
#[derive(Debug)]
pub(crate) struct MemoryScheme;

impl Scheme for MemoryScheme {
    fn forms(&self) -> &[UrlForm] {
        const { &[UrlForm::new("memory:[NAME]", "tasks of this process")] }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        let name = url.split_once(':').map_or("", |(_, name)| name);
        let memory = if name.is_empty() { Memory::of_this_process() } else { Memory::named(name) };
        Box::pin(async move { Ok(memory as _) })
    }

    fn cross_process(&self) -> bool {
        false
    }
}
