//! The job of another process of this program.

use crate::wait_strategy::WaitStrategy;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum BenchJob {
    HandOff(HandOffJob),
    HotKey(HotKeyJob),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandOffJob {
    pub(crate) url: String,
    pub(crate) span: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HotKeyJob {
    pub(crate) url: String,
    pub(crate) strategy: WaitStrategy,
    pub(crate) span: Duration,
}
