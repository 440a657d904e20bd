//! The quorum, searched exhaustively over the code that decides in production: `Round`, `Tally`, `Lease`, `next_proposed_block` and
//! `raise_fence` of the crate itself. Only the network, the nodes' memory and the passing of time are modelled.
//!
//! - [`fence_tests`]: tokens on nodes that forget nothing. There is no clock and no TTL, a lock vanishes at any moment.
//! - [`reader_tests`]: the same with readers and writers.
//! - [`loss_tests`]: tokens with nodes that forget, and with clocks.
//! - [`hold_tests`]: which attempt may rely on its hold, with leases, renewals and nodes that forget; no tokens.
//! - [`permit_tests`]: why there are no permits on a quorum. This is about numbers only, no code of the crate decides it.
//!
//! Each protection is then removed in turn, and the search must find and describe the shortest way to the damage:
//! `cargo test -p fencelock-core --test quorum_model -- --nocapture`. The numbers are in `docs/en/verification.md`.

mod fence;
mod fence_tests;
mod hold;
mod hold_tests;
mod loss_tests;
mod permit_tests;
mod reader_tests;
mod search;
