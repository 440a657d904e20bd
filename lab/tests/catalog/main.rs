//! All schemes: what their search finds, and that a real server does the same.
#![allow(missing_docs)]

mod exhibits;
mod replays;

use fencelock_lab::{SchemeResults, catalog};
use std::sync::LazyLock;
use std::thread;

/// All schemes, searched once for all tests.
fn all() -> &'static [SchemeResults] {
    static RESULTS: LazyLock<Vec<SchemeResults>> = LazyLock::new(|| {
        let searches: Vec<_> =
            catalog().into_iter().map(|scheme| thread::spawn(|| SchemeResults::of(scheme))).collect();
        searches.into_iter().map(|search| search.join().expect("a search that ends")).collect()
    });
    &RESULTS
}

fn results_of(id: &str) -> &'static SchemeResults {
    all().iter().find(|results| results.scheme.id == id).expect("a scheme")
}
