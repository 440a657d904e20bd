//! Situations that random traces rarely reach.

use super::coverage::Coverage;
use super::differential::{Difference, Differential};
use super::real::Real;
use super::sent::Mutant;
use super::step::{Around, Command, FIRST_TICKET, Foreign, HOLDERS, LAST_TICKET, Step, Token};
use fencelock_core::Mode;
use fencelock_model::{CAP, Channel, Continued, Entry, Intent, Name, Value, WaiterEntry};

fn step(command: Command) -> Step {
    Step { around: Around::CALM, quarantined_client: None, command }
}

fn after(by_us: i64, step: Step) -> Step {
    Step { around: Around { by_us, ..step.around }, ..step }
}

fn claim(intent: Intent, holder: usize, mode: Mode, ttl_ms: u64) -> Step {
    let (proposal, channel) = (Token::NearNow(0), Some(Channel(0)));
    let (holder, owner) = (HOLDERS[holder], "host:1");
    step(Command::Acquire { intent, holder, owner, ttl_ms, proposal, proposed: false, channel, wanted: 1, mode })
}

fn release(holder: usize) -> Step {
    step(Command::Release { holder: HOLDERS[holder], proposal: Token::NearNow(0) })
}

fn raise(holder: usize, by: i64) -> Step {
    step(Command::Raise { holder: HOLDERS[holder], to: Token::NearFence(by) })
}

fn downgrade(holder: usize) -> Step {
    let proposal = Token::NearNow(0);
    step(Command::Downgrade { holder: HOLDERS[holder], ttl_ms: 30_000, proposal, proposed: false })
}

fn joins(holder: usize, fields: &str) -> Step {
    let value = Value::Ours { holder: HOLDERS[holder], owner: Some("host:1".into()) };
    let version = fields.into();
    let entry = Entry::Waiter(WaiterEntry { ttl_ms: 30_000, wanted: 1, channel: Some(Channel(0)), value, version });
    step(Command::Foreign(Foreign::Join {
        ticket: LAST_TICKET,
        name: Name::Holder(HOLDERS[holder]),
        life_ms: 60_000,
        entry,
    }))
}

fn joins_unreadably(holder: usize) -> Step {
    let (name, entry) = (Name::Holder(HOLDERS[holder]), Entry::Garbage("soon".into()));
    step(Command::Foreign(Foreign::Join { ticket: LAST_TICKET, name, life_ms: 60_000, entry }))
}

fn resize(limit: u32, continued: Option<(u32, u64)>) -> Step {
    let continued = continued.map(|(before, ticket)| Continued { before, ticket });
    step(Command::Resize { limit, continued, proposal: Token::NearNow(0) })
}

/// Changes of a limit, as below.
fn resizing() -> [(usize, Vec<Step>); 4] {
    use Intent::{Enqueue, Poll, Try};
    let permits = |weight, limit| Mode::permits(weight, limit).unwrap();
    let mut without_time = resize(3, None);
    without_time.around.time_refused = true;
    let weights = vec![
        claim(Try, 0, permits(1, 3), 30_000),
        claim(Enqueue, 1, permits(3, 3), 30_000),
        claim(Enqueue, 2, permits(2, 3), 30_000),
        joins(4, "1 s 1 4"),
        resize(2, None),
        claim(Poll, 2, permits(2, 3), 30_000),
        claim(Poll, 1, permits(3, 3), 30_000),
        claim(Poll, 2, permits(3, 3), 30_000),
    ];
    let long = vec![
        claim(Try, 0, permits(2, 2), 30_000),
        claim(Enqueue, 1, permits(2, 2), 30_000),
        claim(Enqueue, 2, permits(1, 2), 30_000),
        claim(Enqueue, 3, permits(1, 2), 30_000),
        resize(3, None),
        resize(3, Some((2, FIRST_TICKET))),
        resize(3, Some((2, FIRST_TICKET + 1000))),
        release(0),
    ];
    let ended = vec![
        claim(Try, 0, permits(1, 4), 10),
        claim(Try, 1, permits(1, 4), 10),
        claim(Try, 2, permits(1, 4), 30_000),
        after(11_000, resize(2, None)),
        resize(2, Some((4, 0))),
    ];
    let refused = vec![claim(Try, 0, permits(1, 2), 30_000), without_time];
    [(CAP, weights), (1, long), (1, ended), (CAP, refused)]
}

/// An unreadable entry that is found by a script other than the usual ones.
fn unreadable() -> [(usize, Vec<Step>); 3] {
    use Intent::{Enqueue, Poll, Try};
    let downgraded = vec![claim(Try, 0, Mode::Exclusive, 30_000), joins_unreadably(4), downgrade(0)];
    let behind = vec![
        claim(Try, 0, Mode::Exclusive, 10),
        claim(Enqueue, 1, Mode::Shared, 30_000),
        joins_unreadably(4),
        after(11_000, claim(Poll, 1, Mode::Shared, 30_000)),
    ];
    // The key outlives its last hold by an eighth of the lease.
    let permits = Mode::permits(1, 2).unwrap();
    let resized = vec![claim(Try, 0, permits, 80), joins_unreadably(4), after(85_000, resize(3, None))];
    [(CAP, downgraded), (CAP, behind), (CAP, resized)]
}

/// Each with the number of waiters and ended holds that one call skips.
pub(super) fn all() -> Vec<(usize, Vec<Step>)> {
    use Intent::{Enqueue, Poll, Try};
    let permit = Mode::permits(1, 2).unwrap();
    let waiting = |mode| [claim(Try, 0, Mode::Exclusive, 30_000), claim(Enqueue, 1, mode, 30_000)];
    let mut without_time = release(0);
    without_time.around.time_refused = true;
    let conflict = [
        claim(Enqueue, 2, Mode::Exclusive, 30_000),
        claim(Enqueue, 3, permit, 30_000),
        joins(4, "1 r 1 0"),
        release(0),
        release(2),
        claim(Poll, 3, permit, 30_000),
    ];
    let ended = [
        claim(Try, 0, Mode::Shared, 10),
        claim(Try, 1, Mode::Shared, 10),
        claim(Try, 2, Mode::Shared, 30_000),
        after(11_000, claim(Try, 3, Mode::Shared, 30_000)),
    ];
    // The second reader has the fence, and the first one a grant below it.
    let raised = [
        claim(Try, 0, Mode::Shared, 10),
        claim(Try, 1, Mode::Shared, 30_000),
        raise(0, -1),
        raise(0, -2),
        raise(1, 5),
        after(11_000, raise(0, 5)),
    ];
    let mut all = vec![
        (CAP, raised.to_vec()),
        (CAP, [&waiting(Mode::Shared)[..], &conflict].concat()),
        (1, ended.to_vec()),
        (CAP, [&waiting(Mode::Shared)[..], &[without_time]].concat()),
    ];
    all.extend(resizing());
    all.extend(unreadable());
    all
}

/// The first trace in which the server differs from the model.
pub(super) fn find(real: &mut Real, mutant: Option<Mutant>) -> Option<(Vec<Step>, Difference, usize)> {
    all().into_iter().find_map(|(cap, trace)| {
        let mut differential = Differential::new(real, mutant, 1, cap);
        let difference = trace
            .iter()
            .find_map(|step| differential.round(std::slice::from_ref(step), &mut Coverage::default()).err());
        difference.map(|difference| (trace, difference, cap))
    })
}

#[test]
fn rare_situations_match_the_model() {
    let Some(mut real) = Real::start(super::differential::START_US) else { return };
    if let Some((trace, difference, _)) = find(&mut real, None) {
        panic!("{trace:#?}\n\n{}", difference.what);
    }
}
