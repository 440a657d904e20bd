//! The job of another process of this program.

use crate::wait_strategy::WaitStrategy;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum BenchJob {
    HandOff(HandOff),
    HotKey(HotKey),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandOff {
    pub(crate) url: String,
    pub(crate) span: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HotKey {
    pub(crate) url: String,
    pub(crate) strategy: WaitStrategy,
    pub(crate) span: Duration,
}
