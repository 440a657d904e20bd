use crate::Place;
use crate::cases::modes;
use crate::in_time::{again_if_too_slow, in_time};
use fencelock_core::{BoxFuture, Capabilities};
use std::any::type_name;
use std::time::Duration;

/// A fact that must hold at every place that has what the fact is about.
pub(crate) struct Case {
    /// The name of the function, which is the fact.
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    /// In how much real time it must be over to say anything.
    bound: Duration,
    body: Box<dyn for<'a> Body<'a>>,
}

impl Case {
    /// Plays it, again if the machine was too slow for it to say anything.
    pub(crate) async fn play(&self, place: &dyn Place) {
        again_if_too_slow(|| in_time(self.bound, self.body.play(place))).await;
    }

    /// The case says something only if it is over within `bound` of real time; see [`in_time`].
    pub(crate) fn within(self, bound: Duration) -> Self {
        Self { bound, ..self }
    }

    /// Why the case says nothing about this place; `None` if it does.
    pub(crate) fn skipped(&self, place: &dyn Place, facts: Capabilities) -> Option<String> {
        self.needs.iter().find_map(|need| need.missing(place, facts)).map(|why| format!("skipped: {why}"))
    }
}

/// A case that makes sense everywhere.
pub(crate) fn case(body: impl for<'a> Body<'a> + 'static) -> Case {
    case_for(&[], body)
}

/// A case for places that have all of `needs`.
pub(crate) fn case_for<B: for<'a> Body<'a> + 'static>(needs: &'static [Need], body: B) -> Case {
    let path = type_name::<B>();
    let name = path.rsplit("::").next().unwrap_or(path);
    Case { name, needs, bound: Duration::MAX, body: Box::new(body) }
}

/// An `async fn(&dyn Place)`, which cannot be named as a function pointer.
pub(crate) trait Body<'a>: Send + Sync {
    fn play(&self, place: &'a dyn Place) -> BoxFuture<'a, ()>;
}

impl<'a, F, Played> Body<'a> for F
where
    F: Fn(&'a dyn Place) -> Played + Send + Sync,
    Played: Future<Output = ()> + Send + 'a,
{
    fn play(&self, place: &'a dyn Place) -> BoxFuture<'a, ()> {
        Box::pin(self(place))
    }
}

/// What a case is about, beyond what every place has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Holds end when nobody renews them.
    Expires,
    /// Holds never end by themselves.
    Endless,
    /// There is a line of waiters.
    Queues,
    /// A holder id is enough to go on elsewhere.
    Portable,
    /// Another's hold can be ended.
    Evicts,
    /// Another's hold cannot be ended.
    NeverEvicts,
    /// The place can be a node of a quorum.
    Node,
    /// There is a mode that the place does not have.
    LacksModes,
    /// Other programs use the same names.
    Foreign,
}

impl Need {
    fn missing(self, place: &dyn Place, facts: Capabilities) -> Option<String> {
        let (there, why) = match self {
            Self::Expires => (facts.expires, "locks never expire here"),
            Self::Endless => (!facts.expires, "locks expire here"),
            Self::Queues => (facts.queues, "there is no line of waiters here"),
            Self::Portable => (facts.portable, "a hold cannot be passed to another process here"),
            Self::Evicts => (facts.evicts, "another's hold cannot be ended here"),
            Self::NeverEvicts => (!facts.evicts, "another's hold can be ended here"),
            Self::Node => match place.node() {
                Ok(_) => (true, ""),
                Err(why) => (false, why),
            },
            Self::LacksModes => (modes().iter().any(|mode| !facts.modes.has(*mode)), "this place has every mode"),
            Self::Foreign => match place.foreign() {
                Ok(_) => (true, ""),
                Err(why) => (false, why),
            },
        };
        (!there).then(|| why.to_owned())
    }
}
