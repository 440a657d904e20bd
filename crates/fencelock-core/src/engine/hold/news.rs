use super::tenure::{End, Tenure};
use crate::engine::Ended;
use crate::{Fault, Moment, NodeFault, Renew, Unknown};
use std::time::Duration;

/// How a hold was lost, and why its renewals fail. It outlives the hold, and is in a box, because most holds never have it.
#[derive(Debug, Clone, Default)]
pub struct LeaseNews(Option<Box<News>>);

#[derive(Debug, Clone, Default)]
struct News {
    /// The last tenure, the others in the order of their numbers, and how they ended.
    ended: Option<(Tenure, Box<[Tenure]>, End)>,
    /// Why its renewals fail, and since when.
    failing: Option<(Unknown, Moment)>,
}

impl LeaseNews {
    /// The hold has ended. The first end is kept. Without a loss, every tenure was released, as if there were no news.
    pub fn on_ended<L>(&mut self, Ended { tenure, others, end, .. }: &Ended<L>) {
        if *end != End::Released {
            let news = self.0.get_or_insert_default();
            news.ended.get_or_insert_with(|| (*tenure, others.clone(), end.clone()));
        }
    }

    /// How this tenure ended. The hold has ended: its last tenures were lost, and the earlier ones were released.
    pub fn end(&self, tenure: Tenure) -> End {
        match self.0.as_ref().and_then(|news| news.ended.as_ref()) {
            Some((last, others, end))
                if *last == tenure || others.iter().any(|other| other.number == tenure.number) =>
            {
                end.clone()
            }
            _ => End::Released,
        }
    }

    /// The result of a renewal that was sent at `sent`. Returns whether it failed in another way than the one before. After the end, a
    /// success is too late.
    pub fn on_renewal(&mut self, sent: Moment, answer: &Result<Renew, Unknown>) -> bool {
        let Err(cause) = answer else {
            self.0.take_if(|news| news.ended.is_none());
            return false;
        };
        let failing = &mut self.0.get_or_insert_default().failing;
        let is_new = failing.as_ref().is_none_or(|(before, _)| !alike(before, cause));
        *failing = Some((cause.clone(), failing.as_ref().map_or(sent, |(_, since)| *since)));
        is_new
    }

    /// Why its renewals fail, if the last one did, and since when.
    pub fn failing(&self, now: Moment) -> Option<(&Unknown, Duration)> {
        let (cause, since) = self.0.as_ref()?.failing.as_ref()?;
        Some((cause, now.since(*since)))
    }
}

/// Whether the same nodes have the same faults. Details may contain a time.
fn alike(one: &Unknown, other: &Unknown) -> bool {
    one.nodes().iter().map(fault_of_node).eq(other.nodes().iter().map(fault_of_node))
}

fn fault_of_node(node: &NodeFault) -> (&str, Fault) {
    (&node.node, node.fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::HoldId;
    use crate::{FencingToken, LossReason, Mode};

    const START: Moment = Moment::from_micros(1_000_000);

    fn tenure(number: u64) -> Tenure {
        let fence = FencingToken::new(1).unwrap();
        Tenure { number, mode: Mode::Shared, fence, since: START, idle: false }
    }

    fn ended(tenures: [u64; 3], end: End) -> Ended<()> {
        let [first, second, last] = tenures.map(tenure);
        let timer = Moment::NEVER;
        Ended { hold: HoldId::NONE, lease: (), tenure: last, others: [first, second].into(), end, timer }
    }

    #[test]
    fn the_last_tenures_are_lost_and_the_earlier_ones_were_released() {
        let (mut news, lost) = (LeaseNews::default(), End::Lost(LossReason::Expired));
        assert_eq!((news.end(tenure(5)), news.0.is_none()), (End::Released, true));
        news.on_ended(&ended([3, 5, 6], lost.clone()));
        news.on_ended(&ended([1, 2, 4], End::Lost(LossReason::Deleted)));
        for (number, end) in [(3, &lost), (5, &lost), (6, &lost), (4, &End::Released), (7, &End::Released)] {
            assert_eq!(news.end(tenure(number)), *end, "{number}");
        }
        assert!(news.0.is_some());
    }

    #[test]
    fn renewals_fail_since_the_first_of_them_and_only_another_fault_is_new() {
        let failed = |fault, detail: &str| Err(Unknown::new("n", fault, detail));
        let mut news = LeaseNews::default();
        let later = START + Duration::from_secs(1);
        assert!(news.on_renewal(START, &failed(Fault::Timeout, "1 ms")));
        assert!(!news.on_renewal(later, &failed(Fault::Timeout, "2 ms")), "only the time differs");
        assert!(news.on_renewal(later, &failed(Fault::Unreachable, "")));
        let (cause, lasts) = news.failing(later).unwrap();
        assert_eq!((cause.nodes()[0].fault, lasts), (Fault::Unreachable, Duration::from_secs(1)));
        assert!(!news.on_renewal(later, &Ok(Renew::Absent)));
        assert_eq!((news.failing(later), news.0.is_none()), (None, true));
        assert!(news.on_renewal(later, &failed(Fault::Unreachable, "")), "it has worked in between");
        news.on_ended(&ended([1, 2, 3], End::Lost(LossReason::Expired)));
        assert!(!news.on_renewal(later, &Ok(Renew::Absent)) && news.failing(later).is_some(), "too late");
    }
}
