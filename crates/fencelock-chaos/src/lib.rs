//! Breaks real servers, networks, clocks and clients while locks are taken, and checks what happened.
#![forbid(unsafe_code)]

pub mod checker;
pub mod history;
