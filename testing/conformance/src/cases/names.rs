//! Every valid name works, and different names are different locks.

use crate::Fixture;
use crate::case::{Case, case};
use crate::test_client::{TestClient, fresh_id, key, test_clients};
use fencelock_core::{Key, Release};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(any_name_can_be_held_seen_and_released),
        case(similar_names_are_different_locks),
        case(names_of_512_bytes_that_differ_in_the_last_are_different_locks),
        case(a_name_and_the_names_below_it_are_locks_of_their_own),
    ]
}

/// Names with a special meaning in a path, a pattern, a shell, a URL or a hash tag.
const AWKWARD: &[&str] = &[
    ".",
    "..",
    "/",
    "\\",
    "//",
    "a/../b",
    "/etc/passwd",
    "../../x",
    "~",
    "-",
    "-n",
    "--help",
    " ",
    "  ",
    " a",
    "a ",
    "a b",
    "%",
    "%%",
    "%2F",
    "%00",
    "%s",
    "*",
    "?",
    "[a]",
    "{",
    "}",
    "{}",
    "}{",
    "{a}",
    "{a}b",
    "a{b}",
    "{{a}}",
    "a{b}c{d}",
    "{}a",
    "$HOME",
    "`id`",
    "'",
    "\"",
    "#",
    ":",
    "a:b",
    "|",
    ";",
    "&",
    "<",
    ">",
    "=",
    "+",
    "!",
    "@",
    ",",
    "订单:42",
    "锁",
    "é",
    "🔒",
    "\u{200b}",
    "\u{feff}a",
    "con",
    "NUL",
    "a.lock",
    ".lock",
    "a.tmp",
    "0",
    "null",
    "nil",
    "fencelock.",
    "fencelock-a",
    "fence",
    "queue",
    "fencelock",
];

async fn any_name_can_be_held_seen_and_released(fixture: &dyn Fixture) {
    let [a, b] = test_clients(fixture).await;
    for name in AWKWARD {
        check(&a, &b, &key(name)).await;
    }
}

async fn check(a: &TestClient, b: &TestClient, name: &Key) {
    let a = TestClient { key: name.clone(), ..a.new_attempt() };
    let b = TestClient { key: name.clone(), ..b.new_attempt() };
    a.takes().await;
    assert_eq!(b.is_refused().await.holders, a.holders());
    assert_eq!(b.seen().await.key, *name, "the name is unchanged");
    assert_eq!(b.lists().await.map(|holding| holding.key).as_ref(), Some(name), "the name is unchanged");
    assert_eq!(a.releases().await, Release::Released, "{name:?}");
    assert_eq!(b.inspects().await, None, "{name:?}");
}

/// Names that a file system, an escape or a normal form could treat as equal.
const ALIKE: &[&str] = &[
    "orders",
    "Orders",
    "ORDERS",
    "orders ",
    " orders",
    "orders.",
    "orders/",
    "/orders",
    "orders//",
    "./orders",
    "orders%20",
    "orders+",
    "orders%2F",
    "orders%2f",
    "orders_",
    "orders%",
    "orders%25",
    "orders\\",
    "{orders}",
    "orders{}",
    "{}orders",
    "é",
    "e\u{301}",
    "É",
    "ﬁ",
    "fi",
    "ß",
    "ss",
    "İ",
    "i\u{307}",
    "Ａ",
    "A",
    "a",
];

async fn similar_names_are_different_locks(fixture: &dyn Fixture) {
    let [client] = test_clients(fixture).await;
    let mark = fresh_id();
    let names =
        ALIKE.iter().map(|name| format!("{name}|{mark}")).chain(ALIKE.iter().map(|name| format!("{mark}|{name}")));
    hold_all_at_once(&client, names).await;
}

async fn names_of_512_bytes_that_differ_in_the_last_are_different_locks(fixture: &dyn Fixture) {
    let [client] = test_clients(fixture).await;
    let mark = fresh_id().to_string();
    let latin = format!("{mark}{}", "k".repeat(Key::MAX_BYTES - mark.len() - 1));
    let han = format!("{mark}kk{}", "锁".repeat((Key::MAX_BYTES - mark.len() - 3) / 3));
    let names: Vec<_> =
        [&latin, &han].iter().flat_map(|stem| ["x", "y", "X"].map(|end| format!("{stem}{end}"))).collect();
    assert_eq!(names[0].len(), Key::MAX_BYTES);
    assert_eq!(names[3].len(), Key::MAX_BYTES);
    hold_all_at_once(&client, names.into_iter()).await;
}

async fn a_name_and_the_names_below_it_are_locks_of_their_own(fixture: &dyn Fixture) {
    let [client] = test_clients(fixture).await;
    let top = fresh_id();
    hold_all_at_once(&client, ["", "/a", "/a/b", "/a/b/c", ":fence", ":queue"].iter().map(|end| format!("{top}{end}")))
        .await;
}

/// Acquires all keys, each with its own holder, and then releases each.
async fn hold_all_at_once(client: &TestClient, names: impl Iterator<Item = String>) {
    let holders: Vec<_> = names.map(|name| TestClient { key: key(&name), ..client.new_attempt() }).collect();
    for holder in &holders {
        holder.takes().await;
    }
    for holder in &holders {
        assert!(holder.seen().await.has(holder.holder.id), "{:?}", holder.key);
    }
    for holder in &holders {
        assert_eq!(
            holder.releases().await,
            Release::Released,
            "{:?} was released by the holder of another key",
            holder.key
        );
    }
}
