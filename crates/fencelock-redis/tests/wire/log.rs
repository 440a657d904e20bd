//! The warnings of a test.

use std::io::Write;
use std::sync::{Arc, Mutex, Once};
use tracing::subscriber::DefaultGuard;

#[derive(Debug)]
pub(crate) struct Log {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: DefaultGuard,
}

impl Log {
    /// Begins to record what this thread logs, which has all tasks of a test.
    pub(crate) fn begin() -> Self {
        static FOR_ALL: Once = Once::new();
        let warnings = || tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::WARN);
        // Other tests meet the same warnings at the same time. With a subscriber for all of them, none is cached as of no interest.
        FOR_ALL.call_once(|| {
            tracing::subscriber::set_global_default(warnings().with_writer(std::io::sink).finish()).unwrap();
        });
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let into = Arc::clone(&text);
        let writer = move || Into(Arc::clone(&into));
        Self { text, _guard: tracing::subscriber::set_default(warnings().with_writer(writer).finish()) }
    }

    /// The warnings so far that contain `part`.
    pub(crate) fn warnings(&self, part: &str) -> Vec<String> {
        let text = String::from_utf8(self.text.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }
}

struct Into(Arc<Mutex<Vec<u8>>>);

impl Write for Into {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
