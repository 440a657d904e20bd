//! The log of a test.

use std::io::Write;
use std::sync::{Arc, Mutex, Once};
use tracing_subscriber::fmt::MakeWriter;

/// What the library says in the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn warnings(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn listen(&self) -> tracing::subscriber::DefaultGuard {
        static FOR_ALL: Once = Once::new();
        // Other tests meet the same warnings at the same time. With a subscriber for all of them, none is cached as of no interest.
        FOR_ALL.call_once(|| {
            let nowhere = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::sink);
            tracing::subscriber::set_global_default(nowhere.finish()).unwrap();
        });
        let log = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::WARN);
        tracing::subscriber::set_default(log.with_writer(self.clone()).finish())
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
