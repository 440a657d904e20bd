package fencelock

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
)

// Held is a lock, or several that were taken together. The server renews it until it is released or lost, or this process ends. The
// garbage collector does not release it. Its methods may be called from several goroutines.
type Held struct {
	session  *session
	reply    reply
	ctx      context.Context
	cancel   context.CancelCauseFunc
	question *time.Timer // asks for the remaining time
	expiry   *time.Timer // ends the hold when the time that was told last is over
	err      error       // of the release, or why it was lost; with the mutex of the session
}

// newHeld makes a hold of a grant. With the mutex of the session.
func newHeld(ctx context.Context, s *session, granted reply) *Held {
	if granted.Keys == nil {
		granted.Keys, granted.Tokens = []string{granted.Key}, []int64{granted.Token}
	}
	held := &Held{session: s, reply: granted}
	held.ctx, held.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	held.question = time.AfterFunc(math.MaxInt64, func() { held.Remaining(context.Background()) })
	held.expiry = time.AfterFunc(math.MaxInt64, func() { held.lose("its time is over: its MaxHold, or the server did not say that it was renewed") })
	s.holds[granted.Hold] = held
	return held
}

// Key returns the key; of several, the first.
func (h *Held) Key() string { return h.reply.Keys[0] }

// Keys returns all keys, in the order of the request.
func (h *Held) Keys() []string { return slices.Clone(h.reply.Keys) }

// Token returns the fencing token. It grows with every grant of the key: a store that keeps the greatest token that it has seen can
// refuse a late write of an earlier holder. Of several keys, it is the token of the first.
func (h *Held) Token() int64 { return h.reply.Tokens[0] }

// Tokens returns the fencing token of each of [Held.Keys].
func (h *Held) Tokens() []int64 { return slices.Clone(h.reply.Tokens) }

// Slot returns the number of the slot of a lock with [Slots], otherwise -1.
func (h *Held) Slot() int { return h.reply.Slot }

// Context is cancelled when the lock is lost, with a cause that is [ErrLost]: before the server gives the key to another holder. When the
// server is being stopped, it is cancelled earlier, with [ErrEnding], so that the lock can be released in order. A release cancels it
// with [context.Canceled]. It has the values of the context that was given to [Client.Lock], but does not end with it.
//
// A process that was paused may go on for a moment before it is told: let the store check [Held.Token].
func (h *Held) Context() context.Context { return h.ctx }

// Remaining asks the server for how long the lock is held at least; it is longer if the lease is renewed. A lock that does not expire has
// more than a century.
//
// Errors: [ErrLost] if the lock was lost, which it also counts as if the server has no answer within a second; [ErrUsage] after a
// release; the cause of ctx if it is done earlier, when nothing is known.
func (h *Held) Remaining(ctx context.Context) (time.Duration, error) {
	ctx, sent := given(ctx), time.Now()
	answer, err := h.session.call(ctx, answerTimeout, "remaining", map[string]any{"hold": h.reply.Hold})
	if err == nil {
		return h.count(answer.Remaining, sent)
	} else if ctx.Err() != nil {
		return 0, err
	}
	return 0, h.lose(err)
}

// count notes and returns what is left of the remaining time in an answer to a request that was sent then. The next question is due after
// half of it, so that its answer is there before the end.
func (h *Held) count(remaining Seconds, sent time.Time) (time.Duration, error) {
	left := remaining.Duration() - time.Since(sent)
	h.session.mu.Lock()
	isHeld := left > 0 && h.session.holds[h.reply.Hold] == h
	if isHeld {
		h.question.Reset(min(left/2, watchInterval))
		h.expiry.Reset(left)
	}
	h.session.mu.Unlock()
	if !isHeld {
		return 0, h.lose("its time is over")
	}
	return left, nil
}

// Release gives the lock back and waits until that is confirmed, at most ten seconds. It is sent even if ctx is done, so that
// `defer held.Release(ctx)` releases in any case. Later calls do nothing and have the same answer.
//
// Errors: [ErrLost] if the lock was lost: what it protected may have had another holder meanwhile. [ErrUnreachable], or the cause of ctx,
// if the release is not confirmed: the server goes on trying, and the lease ends by itself.
func (h *Held) Release(ctx context.Context) error {
	s := h.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.end(nil) {
		s.mu.Unlock()
		err := h.giveBack(given(ctx))
		s.mu.Lock()
		h.err = err
	} else if h.err != nil { // the server keeps the other keys of a lost lock until now
		go h.giveBack(context.Background())
	}
	return h.err
}

// giveBack releases the hold at the server.
func (h *Held) giveBack(ctx context.Context) error {
	_, err := h.session.call(ctx, backendTimeout, "release", map[string]any{"hold": h.reply.Hold})
	return err
}

// lose ends the hold as lost, and returns why it is over. It is released: a server that was frozen must not keep it for nobody.
func (h *Held) lose(cause any) error {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	if h.end(lost(h.Key(), cause)) {
		go h.giveBack(context.Background())
	}
	return cmp.Or[error](h.err, failure(64, "lock it again", "the lock on %q was released", h.Key()))
}

// end ends the hold, as lost if it says why; false if it is over already. With the mutex of the session.
func (h *Held) end(why error) bool {
	if h.session.holds[h.reply.Hold] != h {
		return false
	}
	h.err = why
	delete(h.session.holds, h.reply.Hold)
	h.question.Stop()
	h.expiry.Stop()
	h.cancel(why)
	return true
}
