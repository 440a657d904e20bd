//! Waiters that die, that cannot be read, or that one call grants to.

use super::{ID, K, NOW, RUN_ID, SECOND, Server, claim};
use crate::scripts::quarantine::EpochCheck;
use crate::scripts::script::{self, Requested};
use crate::scripts::side_key::side_key;
use fencelock_core::{Intent, Mode};
use fencelock_testkit::Reply;

/// Their entries are those of a later version, or damaged, or show a mode that no client has.
#[test]
fn a_waiter_that_cannot_be_read_keeps_its_place_and_a_strange_mode_is_exclusive() {
    let Some(mut server) = Server::start() else { return };
    let check = EpochCheck::without_marker(RUN_ID);
    for (entry, outcome) in [
        ("0 1 - ID host:1\t1", "unread"),
        ("30000 0 - ID host:1\t1", "unread"),
        ("2 30000 1 - ID host:1", "unread"),
        ("30000 1 - 22222222222222222222222222222222 host:1\t1", "unread"),
        ("30000 1 - ID host:1\t1", "exclusive"),
        ("30000 1 - ID host:1\t2", "exclusive"),
        ("30000 1 - ID host:1\t1 r 1 4", "exclusive"),
        ("30000 1 - ID host:1\t1 s 3 2", "exclusive"),
        ("30000 1 - ID host:1\t1 s 0 2", "exclusive"),
        ("30000 1 - ID host:1\t1 s 1 1000001", "exclusive"),
        ("30000 1 - ID host:1\t1 r 1 0", "shared"),
        ("30000 1 nobody ID host:1\t1", "skipped"),
    ] {
        server.prepare(K, &[]);
        server.acquire(3, Mode::Exclusive, Intent::Try);
        let entry = entry.replace("ID", ID);
        for (side, words) in [
            ("line", ["ZADD", "9000000000000001", ID]),
            ("alive", ["ZADD", "9000000000000", ID]),
            ("waiters", ["HSET", ID, &entry]),
        ] {
            server.process.command(&[words[0], &side_key(K, side), words[1], words[2]]);
        }
        server.acquire(9, Mode::Exclusive, Intent::Enqueue);
        let ticket = server.process.command(&["ZSCORE", &side_key(K, "line"), &format!("{:032x}", 9)]);
        assert!(
            ticket.text().is_some_and(|ticket| ticket.ends_with("000")),
            "a time behind one that is none: {ticket:?}"
        );
        let seen = server.run(&script::inspect(K, 10, check));
        assert_eq!(seen.contains(&format!(" \t{ID} host:1")), outcome != "unread", "since when is unknown: {seen}");
        let released = server.release(3, check);
        let Reply::Text(value) = server.process.command(&["GET", K]) else { panic!("nobody waits after {entry:?}") };
        let holder = if value.starts_with(ID) {
            "exclusive"
        } else if value.starts_with("fencelock") {
            "shared"
        } else {
            "other"
        };
        let found = match (holder, released.contains(ID)) {
            ("other", true) => "unread",
            ("other", false) => "skipped",
            (holder, _) => holder,
        };
        assert_eq!(found, outcome, "{entry:?}: {released}");
        let stays = server.process.command(&["ZSCORE", &side_key(K, "line"), ID]).text().is_some();
        assert_eq!(stays, outcome == "unread", "{entry:?}");
        if stays {
            server.release(9, check);
            let gone = server.acquire(5, Mode::Exclusive, Intent::Poll);
            assert!(gone.starts_with("gone") && gone.contains(ID), "{gone}");
            assert!(server.acquire(7, Mode::Exclusive, Intent::Poll).starts_with("granted"), "its own client can");
        }
    }
}

#[test]
fn the_dead_leave_nothing_and_those_who_poll_late_keep_their_place() {
    let Some(mut server) = Server::start() else { return };
    let (check, permit_of) = (EpochCheck::without_marker(RUN_ID), |limit| Mode::permits(1, limit).unwrap());
    server.acquire(1, Mode::Exclusive, Intent::Try);
    server.acquire(8, permit_of(2), Intent::Enqueue);
    for (millis, reply) in [(3 * SECOND - 1, "class s 2"), (3 * SECOND, "busy")] {
        server.at(millis);
        let claimed = server.acquire(9, permit_of(3), Intent::Try);
        assert!(claimed.starts_with(reply), "its limit counts while it lives: {claimed}");
    }
    server.release(8, check);
    server.at(0);
    for number in [7, 8] {
        server.acquire(number, Mode::Exclusive, Intent::Enqueue);
    }
    server.at(2 * SECOND);
    server.acquire(10, Mode::Exclusive, Intent::Enqueue);
    server.at(4 * SECOND);
    let seen = server.run(&script::inspect(K, 10, check));
    assert!(seen.contains(&format!("\t{:032x} ", 10)) && !seen.contains(&format!("\t{:032x} ", 8)), "{seen}");
    assert!(server.acquire(7, Mode::Exclusive, Intent::Poll).starts_with("queued 0"));
    let count = |server: &Server| {
        [("line", "ZCARD"), ("waiters", "HLEN"), ("alive", "ZCARD")]
            .map(|(side, count)| server.process.command(&[count, &side_key(K, side)]))
    };
    assert_eq!(count(&server), [const { Reply::Int(2) }; 3], "the other one is dead");
    for number in [7, 10] {
        server.release(number, check);
    }
    // A client that is not subscribed has no message, and is passed over.
    let waiter = claim(K, Intent::Enqueue, 1);
    server.run(&script::acquire(K, &waiter, false, Requested::Own(NOW), Some("unread"), check));
    server.acquire(9, Mode::Exclusive, Intent::Enqueue);
    server.release(1, check);
    assert!(server.is_held_by(9));
}

/// A downgrade, or a poll: of a lock that was deleted, or in a mode that is refused. The last waiter cannot be read.
#[test]
fn one_call_grants_to_all_that_fit_and_reports_what_it_cannot_read() {
    let Some(mut server) = Server::start() else { return };
    let (x, r, permits, unread) =
        (Mode::Exclusive, Mode::Shared, |weight| Mode::permits(weight, 2).unwrap(), format!("{:032x}", 9));
    let cases: [(&[_], bool, [&str; 2]); 3] = [
        (&[(7, x), (8, r)], false, ["downgraded", &unread]),
        (&[(3, x), (7, r), (8, r)], true, ["granted", &unread]),
        (&[(3, permits(1)), (7, permits(2)), (8, permits(1))], false, ["class s 2", &unread]),
    ];
    for (clients, deleted, parts) in cases {
        server.prepare(K, &[]);
        for (number, mode) in clients {
            server.acquire(*number, *mode, Intent::Enqueue);
        }
        for side in ["line", "alive"] {
            server.process.command(&["ZADD", &side_key(K, side), "9000000000000001", &unread]);
        }
        if deleted {
            server.process.command(&["DEL", K]);
        }
        let reply = if clients[0].0 == 7 { server.downgrade() } else { server.acquire(7, r, Intent::Poll) };
        let hold = server.process.command(&["ZSCORE", &side_key(K, "holds"), &format!("{:032x}", 8)]);
        assert!(hold.text().is_some(), "{clients:?}: the next waiter has no hold: {hold:?}");
        assert!(parts.iter().all(|part| reply.contains(part)), "{parts:?}: {reply}");
    }
}
