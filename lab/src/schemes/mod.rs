//! The schemes, in the order of their articles.

mod early;
mod own;
mod permits;
mod read_write;
mod second;
mod third;

use crate::fault::Fault;
use crate::lang::Text;
use crate::scheme::{Home, Line, LockScheme, Op};

/// All schemes.
pub fn catalog() -> Vec<LockScheme> {
    let mut all = early::schemes();
    all.extend(second::schemes());
    all.extend(third::schemes());
    all.extend(permits::schemes());
    all.extend(read_write::schemes());
    all.extend(own::schemes());
    all
}

/// The scheme with this name.
pub fn find(id: &str) -> Option<LockScheme> {
    catalog().into_iter().find(|scheme| scheme.id == id)
}

const fn line(op: Op, yes: u8, no: u8) -> Line {
    Line { op, yes, no }
}

/// A line that has the same successor for both answers.
const fn then(op: Op, next: u8) -> Line {
    line(op, next, next)
}

/// Acquire, work, release.
fn plain(acquire: Op, release: Op) -> Vec<Line> {
    vec![
        line(acquire, 1, 5),
        then(Op::Enter, 2),
        then(Op::Write, 3),
        then(release, 4),
        then(Op::Done, 0),
        then(Op::Busy, 0),
    ]
}

/// The common settings of schemes with a lease on one Redis server.
fn on_redis(id: &'static str, title: Text, advice: Text, lines: Vec<Line>) -> LockScheme {
    LockScheme {
        id,
        title,
        advice,
        lines,
        home: Home::Redis,
        has_lease: true,
        is_renewed: false,
        is_fenced: false,
        permits: 1,
        others_start: 0,
        clients: 3,
        faults: vec![Fault::Crash, Fault::LostRelease, Fault::Overrun],
        exhibit: None,
    }
}
