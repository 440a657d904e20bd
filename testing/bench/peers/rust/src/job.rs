use serde::{Deserialize, Serialize};

/// The job of a worker.
#[derive(Debug, Deserialize)]
pub struct Job {
    pub url: String,
    pub(crate) workload: String,
    pub(crate) key: String,
    pub(crate) keys: u32,
    pub(crate) tasks: u32,
    pub(crate) process: u32,
    pub(crate) warm_up_ms: u64,
    pub(crate) span_ms: u64,
    pub(crate) ttl_ms: u64,
}

impl Job {
    pub(crate) fn is_sale(&self) -> bool {
        self.workload == "flash-sale"
    }
}

/// The result of a worker.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Log {
    pub(crate) tasks: Vec<Share>,
    pub(crate) waits: Vec<(u64, u64)>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Share {
    pub(crate) grants: u64,
    pub(crate) refused: u64,
}
