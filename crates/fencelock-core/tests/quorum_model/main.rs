//! The quorum, searched exhaustively over the code that decides in production.

#[path = "../handoff_model/explorer.rs"]
mod explorer;
mod fence;
mod fence_tests;
mod hold;
mod hold_tests;
mod search;
