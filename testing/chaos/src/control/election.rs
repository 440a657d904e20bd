use super::holds::{ControlHolds, LEASE};
use crate::Failure;
use crate::connect::connect;
use crate::history::{HistoryLine, Op};
use crate::recorder::now;
use fencelock::blocking::Client;
use fencelock::{Leader, Observation};

impl ControlHolds<'_> {
    /// An observer reports each reply when it arrives, and the first one is late. Another asks for the term and for the value by
    /// separate requests, while the leader changes.
    pub(super) fn observed(&self) -> Result<(), Failure> {
        let key = "control-observed";
        let (first, second) = self.two_leaders(key)?;
        self.report(key, second);
        self.report(key, first);

        let key = "control-mixed";
        let (mut first, second) = self.two_leaders(key)?;
        first.term = second.term;
        self.report(key, first);
        Ok(())
    }

    /// What the servers say about a leader and its successor.
    fn two_leaders(&self, key: &str) -> Result<(Leader, Leader), Failure> {
        self.announce(key, "C13");
        let client = connect(self.url)?;
        Ok((self.lead(&client, key, "first")?, self.lead(&client, key, "second")?))
    }

    fn lead(&self, client: &Client, key: &str, value: &str) -> Result<Leader, Failure> {
        let election = client.election(key).value(value).ttl(LEASE).wait(3 * LEASE);
        let invoke_us = now();
        let leadership = election.clone().campaign()?;
        let mut line = HistoryLine::new(value, key, Op::Acquire, invoke_us, now());
        line = line.hold(value, Some(leadership.term().get()));
        line.value = Some(value.to_owned());
        self.recorder.note(&line);
        let leader = election.leader()?.ok_or("a leader that is not named")?;
        let invoke_us = now();
        let line = HistoryLine::new(value, key, Op::Release, invoke_us, invoke_us);
        self.recorder.note(&line.hold(value, Some(leadership.term().get())));
        leadership.resign()?;
        Ok(leader)
    }

    fn report(&self, key: &str, leader: Leader) {
        self.recorder.note_observation("observer", key, now(), Some(&Observation::Leader(leader)));
    }
}
