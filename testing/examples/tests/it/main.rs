//! The example programs and the code of the documentation, as a reader runs them.
#![allow(missing_docs)]

mod axum;
mod leader;
mod nightly;
mod pool;
mod programs;
mod recipes;
