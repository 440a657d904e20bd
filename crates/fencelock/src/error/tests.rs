use super::*;
use fencelock_core::{Fault, Foreign, Modes, Occupant};

#[test]
fn busy_names_key_holder_time_left_and_effort() {
    let error = Error::Busy {
        key: Key::new("nightly-report").unwrap(),
        holders: Occupant::from_wire(&format!("{} web-1:4242 nightly", "ab".repeat(16))).into(),
        expires_in: Expiry::In(Duration::from_millis(12_340)),
        waited: Duration::from_secs(5),
        attempts: 7,
    };
    assert_eq!(
        error.to_string(),
        "nightly-report is held by web-1:4242 (nightly), whose lease ends in 12.3 s unless renewed; \
         gave up after 5 s and 7 tries"
    );
}

#[test]
fn unreachable_names_the_key_if_there_is_one() {
    let cause = Unknown::new("redis://cache", Fault::Timeout, "no answer");
    let key = Some(Key::new("nightly-report").unwrap());
    let of = |key| Error::Unreachable { key, cause: cause.clone(), waited: Duration::from_secs(5), attempts: 7 };
    assert_eq!(
        of(key).to_string(),
        "the backend of the lock on nightly-report cannot be reached after 5 s and 7 tries"
    );
    assert!(of(None).to_string().starts_with("the backend of the locks cannot be reached after 5 s"));
    assert_eq!(Error::unreachable(cause.clone()).to_string(), "the backend of the locks cannot be reached");
    let full = Unknown::new("redis://cache", Fault::Full, "OOM");
    assert_eq!(Error::unreachable(full).to_string(), "the backend of the locks grants nothing");
}

/// One of each variant. The match fails to compile when a variant is added.
fn all() -> Vec<Error> {
    let key = || Key::new("k").unwrap();
    let cause = |fault| Unknown::new("redis://cache:6379", fault, "in the words of the server");
    let all = vec![
        busy_by(Occupant::Foreign(Foreign::string("1"))),
        Error::Unreachable {
            key: Some(key()),
            cause: cause(Fault::Timeout),
            waited: Duration::from_secs(2),
            attempts: 3,
        },
        unconfirmed(&key(), cause(Fault::NotReplicated { confirmed: 0, wanted: 2 }), Duration::ZERO, 1),
        Error::lost(key(), LossReason::TakenBy(Occupant::Foreign(Foreign::string("1")).into())),
        check_mode("file:/x", &key(), Modes::default(), Mode::Shared).unwrap_err(),
        conflict(&key(), Mode::Shared, Mode::Shared),
        Error::from(Invalid::new("the reason")),
        Error::Closed { held: 1, pending: 2 },
    ];
    let kind = |error: &Error| match error {
        Error::Busy { .. } => 0,
        Error::Unreachable { .. } => 1,
        Error::NotReplicated { .. } => 2,
        Error::Lost { .. } => 3,
        Error::ModeUnsupported { .. } => 4,
        Error::ModeConflict { .. } => 5,
        Error::Config(_) => 6,
        Error::Closed { .. } => 7,
    };
    assert_eq!(all.iter().map(kind).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    all
}

fn busy_by(holder: Occupant) -> Error {
    Error::Busy {
        key: Key::new("k").unwrap(),
        holders: holder.into(),
        expires_in: Expiry::Never,
        waited: Duration::from_secs(1),
        attempts: 1,
    }
}

#[test]
fn no_text_is_printed_twice_in_a_chain() {
    for error in all() {
        let chain: Vec<String> = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source())
            .map(ToString::to_string)
            .collect();
        let whole = chain.join(": ");
        for text in &chain {
            assert_eq!(whole.matches(text.as_str()).count(), 1, "{whole}");
        }
        assert_eq!(format!("{error:#}"), whole, "the alternate form shows the chain");
    }
}

#[test]
fn the_cause_of_an_outage_is_the_source() {
    use std::error::Error as _;
    for error in all() {
        let source = error.source().and_then(|source| source.downcast_ref::<Unknown>());
        assert_eq!(source.is_some(), error.is_unreachable() || error.is_not_replicated(), "{error}");
    }
}

#[test]
fn every_error_is_of_one_kind() {
    for error in all() {
        let kinds = [
            error.is_busy(),
            error.is_unreachable(),
            error.is_not_replicated(),
            error.is_lost(),
            error.is_mode_unsupported(),
            error.is_mode_conflict(),
            error.is_config(),
            error.is_closed(),
        ];
        assert_eq!(kinds.into_iter().filter(|is| *is).count(), 1, "{error}");
        assert_eq!(error.key().is_none(), error.is_config() || error.is_closed(), "{error}");
    }
}

#[test]
fn a_conflict_of_modes_names_the_key_what_is_there_and_what_to_do() {
    let present = Mode::permits(1, 10).unwrap();
    let conflict = |requested| conflict(&Key::new("pool").unwrap(), present, requested);
    let error = conflict(Mode::Shared);
    assert_eq!(
        error.to_string(),
        "pool is in use as a semaphore with 10 permits: use the same mode and limit in all clients, or another key"
    );
    let resize = "; to change the limit: fencelock resize --permits 5 pool";
    assert_eq!(conflict(Mode::permits(1, 5).unwrap()).to_string(), format!("{error}{resize}"));
    assert!(matches!(error, Error::ModeConflict { present: Mode::Permits { limit: 10, .. }, .. }));
}

#[test]
fn a_backend_that_refuses_for_good_is_a_matter_of_configuration() {
    let of = |fault| Error::from(ConnectError::Unknown(Unknown::new("a:1", fault, "")));
    assert!(of(Fault::Denied).is_config() && of(Fault::Timeout).is_unreachable());
    assert!(Error::from(ConnectError::Url(Invalid::new("no"))).is_config());
}
