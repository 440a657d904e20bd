//! The program as its users meet it: arguments in, streams and an exit code out.
#![allow(missing_docs, clippy::unwrap_used)]

mod answers;
mod bench;
mod child;
mod counting;
mod descendants;
mod exit_codes;
mod flock;
mod holding;
mod hostile_text;
mod json;
mod lab;
mod loss;
mod nesting;
mod outage;
mod pages;
mod place;
mod quarantine;
mod running;
mod signals;
mod stories;
mod terminal;
mod test;
mod two_step;
mod waiting;
