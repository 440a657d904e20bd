//! What goes to the server.

use crate::scripts::lua::Lua;
use crate::scripts::script::{self, Call};
use fencelock_model::CAP;
use redis::Arg;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A change of a script that the test must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Mutant {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

/// What each mutant does wrong, and the text of a script that it replaces by another.
pub(super) type Mutants = &'static [(&'static str, &'static str, &'static str)];

/// The changes of the scripts before they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Changes {
    pub(super) mutant: Option<Mutant>,
    /// The number of waiters that a script skips.
    pub(super) cap: usize,
}

/// A changed source, with its digest.
type Change = Option<Rc<Lua>>;

impl Changes {
    /// `None` if there is none. A script is changed once, and then sent thousands of times.
    fn of(self, call: &Call) -> Change {
        thread_local! {
            static CHANGED: RefCell<HashMap<(Vec<u8>, Changes), Change>> = RefCell::default();
        }
        let change = || self.change(std::str::from_utf8(words(&call.in_full())[1]).unwrap());
        let digest = words(call.by_digest())[1].to_vec();
        CHANGED.with_borrow_mut(|changed| changed.entry((digest, self)).or_insert_with(change).clone())
    }

    fn change(self, source: &str) -> Change {
        let (found, cap) = (format!("local CAP = {CAP} "), format!("local CAP = {} ", self.cap));
        let source_of_cap = if self.cap == CAP { source.to_owned() } else { source.replace(&found, &cap) };
        let changed = self.mutant.map(|Mutant { from, to }| source_of_cap.replace(from, to)).unwrap_or(source_of_cap);
        (changed != source).then(|| Lua::alone(&changed).into())
    }
}

/// What goes to the server.
#[derive(Debug)]
pub(super) struct Sent {
    first: Vec<u8>,
    script: Option<Call>,
    change: Change,
}

impl Sent {
    pub(super) fn script(call: Call, changes: Changes) -> Self {
        let mut first = Vec::with_capacity(512);
        let change = changes.of(&call);
        let mut by_digest = words(call.by_digest());
        if let Some(changed) = &change {
            by_digest[1] = changed.digest.as_bytes();
        }
        write(&mut first, by_digest.into_iter());
        Self { first, script: Some(call), change }
    }

    pub(super) fn plain(words: &[&str]) -> Self {
        let mut first = Vec::new();
        write(&mut first, words.iter().map(|word| word.as_bytes()));
        Self { first, script: None, change: None }
    }

    pub(super) fn first(&self) -> &[u8] {
        &self.first
    }

    /// Whether it differs from what production sends.
    pub(super) const fn is_changed(&self) -> bool {
        self.change.is_some()
    }

    /// After the server replied that it has not cached the script.
    pub(super) fn in_full(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let full = self.script.as_ref().expect("only scripts are unknown").in_full();
        let mut full = words(&full);
        if let Some(changed) = &self.change {
            full[1] = changed.source().as_bytes();
        }
        write(&mut out, full.into_iter());
        out
    }
}

/// All scripts in full.
pub(super) fn sources() -> Vec<String> {
    use script::{ACQUIRE, DOWNGRADE, EVICT, HANDSHAKE, INIT, INSPECT, RAISE, RELEASE, RENEW, RESIZE};
    let all = [&ACQUIRE, &RAISE, &RENEW, &RELEASE, &INSPECT, &EVICT, &DOWNGRADE, &RESIZE, &HANDSHAKE, &INIT];
    all.iter().map(|lua| lua.source().to_owned()).collect()
}

fn words(command: &redis::Cmd) -> Vec<&[u8]> {
    let word = |arg| if let Arg::Simple(word) = arg { word } else { unreachable!("no script has a cursor") };
    command.args_iter().map(word).collect()
}

/// A command in the format of the protocol.
pub(super) fn write<'a>(into: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'a [u8]>) {
    into.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        into.extend(format!("${}\r\n", word.len()).bytes());
        into.extend(word);
        into.extend(b"\r\n");
    }
}
