//! The effect of each line of a scheme.

use super::LockModel;
use super::permits::{count_down, give_count, give_permit, node_of, take_count, take_permit};
use super::read_write::{end_write, read_lock, read_unlock, write_lock};
use super::state::{Action, Client, Entry, FOR_EVER, LAST_TICK, Life, Reply, State, TRIES, TTL, Transition, Value};
use crate::property::Property;
use crate::scheme::{Content, Op};

impl LockModel<'_> {
    /// Runs the next line of a client; with `lost`, over a broken connection.
    pub(super) fn run(&self, step: &mut Transition, at: usize, lost: bool) {
        begin(&mut step.after, at, self.scheme.others_start);
        let line = self.scheme.lines[usize::from(step.after.clients[at].line)];
        if lost {
            step.after.clients[at].cut = true;
            step.reply = Reply::Failed;
        } else {
            step.yes = self.carry_out(step, at, line.op);
            let works_next = self.scheme.lines[usize::from(line.yes)].op == Op::Enter;
            if step.yes && matches!(line.op, Op::TakeCountAt(_)) && works_next {
                self.take(&mut step.after, at);
            }
        }
        if line.op.is_release() || line.op == Op::Unlock {
            self.stop_holding(step, at, if step.yes { line.yes } else { line.no });
        }
        self.go(step, at, if step.yes { line.yes } else { line.no });
    }

    /// A client that has requested the release counts as a holder until it has no more requests to send.
    fn stop_holding(&self, step: &mut Transition, at: usize, next: u8) {
        if !self.scheme.lines[usize::from(next)].op.is_release() {
            step.after.clients[at].holds = false;
        }
    }

    fn carry_out(&self, step: &mut Transition, at: usize, op: Op) -> bool {
        match op {
            Op::SetNx(content) => self.set_nx(step, at, 0, content, None),
            Op::SetNxEx(content) => self.set_nx(step, at, 0, content, Some(TTL)),
            Op::Claim => self.claim(step, at),
            Op::Lock => self.set_nx(step, at, 0, Content::Id, None),
            Op::SetNode(node) => vote(step, at, node),
            Op::HasMajority => self.count(step, at),
            Op::GetSetIsSame => self.get_set(step, at),
            Op::Expire => expire(step),
            Op::HasNoTtl => has_no_ttl(step),
            Op::GetIsMine => get(step) == Value::Id(at as u8),
            Op::GetDeadline => {
                step.after.clients[at].remembered = get(step);
                true
            }
            Op::HasPassed => match step.after.clients[at].remembered {
                Value::Time(deadline) => deadline <= self.clock(&step.after, at),
                _ => true,
            },
            Op::Del | Op::MultiDel | Op::ExpireNow | Op::Unlock => delete(step, at, 0),
            Op::CompareDel => compare_delete(step, at, 0),
            Op::DelNode(node) => compare_delete(step, at, usize::from(node)),
            Op::TakeCount => take_count(self, step, at),
            Op::GiveCount => give_count(step, 0),
            Op::TakeCountAt(nth) => count_down(self, step, at, node_of(at, nth)),
            Op::GiveCountAt(nth) => give_count(step, node_of(at, nth)),
            Op::TakeByClock => take_permit(self, step, at, self.clock(&step.after, at)),
            Op::TakeByServer => take_permit(self, step, at, step.after.now),
            Op::GivePermit => give_permit(step, at),
            Op::WriteLock => write_lock(self, step, at),
            Op::ReadLock => read_lock(step, at),
            Op::EndWrite | Op::WriteUnlock => end_write(step, at, false),
            Op::EndWriteKeepTtl => end_write(step, at, true),
            Op::ReadUnlock => read_unlock(step, at),
            Op::Read => {
                step.after.clients[at].inside = false;
                true
            }
            Op::Enter => self.enter(step, at),
            Op::IsHeld => is_held(step, at),
            Op::Write => self.write(step, at),
            Op::Retry => again(step, at),
            Op::Busy | Op::Done => false,
        }
    }

    fn value(&self, state: &State, at: usize, content: Content) -> Value {
        match content {
            Content::One => Value::One,
            Content::Id => Value::Id(at as u8),
            Content::Now => Value::Time(self.clock(state, at)),
            Content::Deadline => Value::Time(self.clock(state, at) + TTL),
        }
    }

    fn set_nx(&self, step: &mut Transition, at: usize, node: usize, content: Content, ttl: Option<u8>) -> bool {
        if step.after.keys[node].is_some() {
            step.reply = if ttl.is_some() { Reply::Value(Value::Nil) } else { Reply::Int(0) };
            return false;
        }
        let value = self.value(&step.after, at, content);
        step.after.keys[node] = Some(Entry { value, ttl, owner: at as u8 });
        step.reply = if ttl.is_some() { Reply::Ok } else { Reply::Int(1) };
        self.take(&mut step.after, at);
        true
    }

    /// From here on, the client assumes that it holds the lock.
    pub(super) fn take(&self, state: &mut State, at: usize) {
        state.grants += 1;
        state.quiet = 0;
        let lease = if self.scheme.has_lease { TTL } else { FOR_EVER };
        state.clients[at] = Client { holds: true, lease, grant: state.grants, ..state.clients[at] };
    }

    fn claim(&self, step: &mut Transition, at: usize) -> bool {
        let taken = self.set_nx(step, at, 0, Content::Id, Some(TTL));
        step.reply = Reply::Token(if taken { step.after.grants } else { 0 });
        taken
    }

    fn count(&self, step: &mut Transition, at: usize) -> bool {
        let Client { votes, lease, .. } = step.after.clients[at];
        if votes < 2 || lease == 0 {
            return false;
        }
        self.take(&mut step.after, at);
        step.after.clients[at].lease = lease;
        true
    }

    fn get_set(&self, step: &mut Transition, at: usize) -> bool {
        let value = self.value(&step.after, at, Content::Deadline);
        let old = step.after.keys[0];
        let seen = old.map_or(Value::Nil, |entry| entry.value);
        step.reply = Reply::Value(seen);
        let same = seen == step.after.clients[at].remembered;
        let owner = old.map_or(at as u8, |entry| entry.owner);
        if old.is_some() {
            step.touch(at, owner);
        }
        step.after.keys[0] = Some(Entry { value, ttl: None, owner: if same { at as u8 } else { owner } });
        if same {
            self.take(&mut step.after, at);
        }
        same
    }

    fn enter(&self, step: &mut Transition, at: usize) -> bool {
        let grant = step.after.clients[at].grant;
        if self.scheme.is_fenced && grant < step.after.newest {
            return false;
        }
        step.after.newest = step.after.newest.max(grant);
        step.after.clients[at].inside = true;
        true
    }

    fn write(&self, step: &mut Transition, at: usize) -> bool {
        let this = &mut step.after.clients[at];
        this.inside = false;
        // Holders of permits may work at the same time, so a later one makes only a write after the end of the lease late.
        let ended = self.scheme.permits == 1 || this.lease == 0;
        let late = ended && this.grant < step.after.newest;
        if late && !self.scheme.is_fenced {
            step.broken |= Property::NoLateWrite.bit();
        }
        !(late && self.scheme.is_fenced)
    }

    /// Moves to a line. Lines that end a client are not steps.
    fn go(&self, step: &mut Transition, at: usize, next: u8) {
        let op = self.scheme.lines[usize::from(next)].op;
        let this = &mut step.after.clients[at];
        this.line = next;
        if matches!(op, Op::Busy | Op::Retry) && step.after.quiet >= self.lifetime() {
            step.broken |= Property::NoDeadLock.bit();
        }
        if matches!(op, Op::Busy | Op::Done) {
            // The stored values of a finished client make no difference.
            *this = Client { life: Life::Gone, cut: this.cut, ..Client::default() };
            step.after.quiet = 0;
        }
    }
}

fn vote(step: &mut Transition, at: usize, node: u8) -> bool {
    let this = &mut step.after.clients[at];
    if node == 0 {
        (this.lease, this.votes) = (TTL, 0);
    }
    let slot = &mut step.after.keys[usize::from(node)];
    if slot.is_some() {
        step.reply = Reply::Value(Value::Nil);
        return false;
    }
    *slot = Some(Entry { value: Value::Id(at as u8), ttl: Some(TTL), owner: at as u8 });
    step.after.clients[at].votes += 1;
    step.reply = Reply::Ok;
    true
}

fn again(step: &mut Transition, at: usize) -> bool {
    let this = &mut step.after.clients[at];
    this.tries += 1;
    this.tries < TRIES
}

/// A second client between two steps does not prove a dead lock.
fn begin(state: &mut State, at: usize, others_start: u8) {
    if state.clients[at].life == Life::Idle {
        if (0..state.clients.len()).any(|other| state.running(other)) {
            state.quiet = 0;
        }
        state.clients[at].life = Life::Running;
        if at > 0 {
            state.clients[at].line = others_start;
        }
    }
}

fn get(step: &mut Transition) -> Value {
    let value = step.after.keys[0].map_or(Value::Nil, |entry| entry.value);
    step.reply = Reply::Value(value);
    value
}

/// A client that detects the loss of its lock stops its work.
fn is_held(step: &mut Transition, at: usize) -> bool {
    let this = &mut step.after.clients[at];
    let held = this.lease > 0 && !this.detected_loss;
    this.inside &= held;
    held
}

fn has_no_ttl(step: &mut Transition) -> bool {
    let left = step.after.keys[0].map_or(-2, |entry| entry.ttl.map_or(-1, |ttl| ttl as i8));
    step.reply = Reply::Ttl(left);
    left == -1
}

fn expire(step: &mut Transition) -> bool {
    let found = step.after.keys[0].is_some();
    if let Some(entry) = &mut step.after.keys[0] {
        entry.ttl = Some(TTL);
    }
    step.reply = Reply::Int(found.into());
    found
}

fn delete(step: &mut Transition, at: usize, node: usize) -> bool {
    let old = step.after.keys[node].take();
    step.reply = Reply::Int(old.is_some().into());
    if let Some(entry) = old {
        step.touch(at, entry.owner);
    }
    old.is_some()
}

fn compare_delete(step: &mut Transition, at: usize, node: usize) -> bool {
    step.reply = Reply::Int(0);
    step.after.keys[node].is_some_and(|entry| entry.value == Value::Id(at as u8)) && delete(step, at, node)
}

/// The clocks of a search fit into a byte.
const _: () = assert!(LAST_TICK + TTL + 1 < FOR_EVER);

impl Action {
    /// The client that acts, if any.
    pub(crate) const fn client(self) -> Option<u8> {
        match self {
            Self::Step(client) | Self::Lose(client) | Self::Renew(client) | Self::Crash(client) => Some(client),
            _ => None,
        }
    }
}
