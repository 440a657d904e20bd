//! The backends of this crate answer as the specification of a key.

use crate::kit::Scratch;
use fencelock::backends::Memory;
use fencelock_testkit::Histories;

#[tokio::test]
async fn memory_answers_as_the_table() {
    let memory = Memory::new();
    Histories { number: 600, queues: true, leases: false, any_mode: true }.play([&memory, &memory], None).await;
}

#[tokio::test]
async fn files_answer_as_the_table() {
    let scratch = Scratch::new();
    Histories { number: 240, queues: false, leases: false, any_mode: true }
        .play([&scratch.locks(), &scratch.locks()], None)
        .await;
}
