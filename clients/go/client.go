// Package fencelock takes distributed locks: of the processes of a machine, or of all machines that use one Redis, PostgreSQL, bucket or
// Kubernetes. The program fencelock holds and renews them; a connection to it is a session, and what the session holds is free when it
// ends, with this process at the latest.
//
//	client, err := fencelock.Connect(ctx, "")
//	...
//	err = client.Do(ctx, "nightly-report", func(ctx context.Context, held *fencelock.Held) error {
//		return report(ctx, held.Token()) // ctx is cancelled when the lock is lost
//	}, fencelock.Wait(5*time.Second))
//
// A lock excludes all other requests for its key, also those of other goroutines of the same client.
package fencelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Version is the release of this client.
const Version = "0.1.0"

// A Client takes locks. Its methods may be called from several goroutines. A context that is nil counts as [context.Background].
type Client struct {
	address string
	users   atomic.Int64
	turn    chan struct{} // full while somebody uses the session
	session *session
}

// clients has the open ones by their address.
var clients sync.Map

// Connect begins a session with a server. The address is one of
//
//   - `unix:PATH` or an absolute path: the socket of `fencelock serve --listen unix:PATH`;
//   - the URL of a backend, such as `redis://HOST` or `file:DIR`: a child process `fencelock serve --stdio`. The program is
//     that of the variable FENCELOCK_PROGRAM, or in PATH;
//   - empty: the socket that the variable FENCELOCK_SOCKET names, or, if it is not set, a child with the settings of the program,
//     such as FENCELOCK_URL.
//
// All calls with one address have the same client: a session, and a child, for the process. If it ends, its locks are lost, and the next
// lock begins another.
//
// Errors: [ErrUsage] if FENCELOCK_SOCKET is empty, if there is no program, or if it does not speak the protocol of this client;
// [ErrUnreachable] if nobody answers.
func Connect(ctx context.Context, address string) (*Client, error) {
	ctx = given(ctx)
	if socket, isSet := os.LookupEnv("FENCELOCK_SOCKET"); address == "" && isSet {
		address = "unix:" + strings.TrimPrefix(socket, "unix:")
	} else if strings.HasPrefix(address, "/") {
		address = "unix:" + address
	}
	if address == "unix:" { // a child would have other locks than those who name the socket
		const advice = "name a socket (unix:/run/fencelock.sock), or unset FENCELOCK_SOCKET to start a child"
		return nil, failure(64, advice, "the name of the socket is empty")
	}
	shared, _ := clients.LoadOrStore(address, &Client{address: address, turn: make(chan struct{}, 1)})
	c := shared.(*Client)
	c.users.Add(1)
	if _, err := c.live(ctx); err != nil { // now, so that mistakes are found
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// live returns the session, a new one if there is none or if it has ended.
func (c *Client) live(ctx context.Context) (_ *session, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("fencelock: connect: %w", context.Cause(ctx))
	}
	if c.users.Load() <= 0 {
		return nil, ErrClosed
	} else if c.session == nil || c.session.ctx.Err() != nil {
		c.session, err = open(ctx, c.address)
	}
	return c.session, err
}

// Close is called once for each [Connect]. The last one ends the session, which frees its locks, and waits for the exit of its child.
func (c *Client) Close() error {
	c.users.Add(-1)
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.users.Load() > 0 { // also if another has come meanwhile
		return nil
	}
	clients.CompareAndDelete(c.address, c)
	if c.session != nil {
		c.session.end(ErrClosed)
		<-c.session.gone
	}
	return nil
}

// Lock waits for the key and takes it. Without [Wait] it waits until ctx is done; then the request is withdrawn, which a server confirms
// at once, and a grant that is on its way is given back. The lock outlives ctx, until [Held.Release].
//
// Errors: [ErrBusy] when [Wait] is over, with the holder and its remaining time in the [*Error]; [ErrUnreachable] if the backend does
// not answer, or, two seconds later than [Wait] ends, if the server is frozen, which ends the session;
// [ErrUsage] for invalid values; [ErrLost] at once after the grant; [ErrEnding], [ErrLimit], [ErrClosed]; those of ctx. Nothing is held then.
func (c *Client) Lock(ctx context.Context, key string, options ...Option) (*Held, error) {
	return c.lock(ctx, map[string]any{"key": key}, key, options)
}

// TryLock is [Client.Lock] without a wait.
func (c *Client) TryLock(ctx context.Context, key string, options ...Option) (*Held, error) {
	return c.Lock(ctx, key, append(options[:len(options):len(options)], Wait(0))...)
}

// LockAll takes all keys or none. Requests that have keys in common cannot deadlock.
func (c *Client) LockAll(ctx context.Context, keys []string, options ...Option) (*Held, error) {
	return c.lock(ctx, map[string]any{"keys": keys}, strings.Join(keys, " "), options)
}

// Do calls f while it holds the key, and releases it when f returns or panics. The context of f ends with ctx, and is cancelled like
// [Held.Context].
//
// Errors: those of [Client.Lock], and f was not called; that of f; that of [Held.Release], also if f returned nil: [ErrLost] says that f
// may not have been alone.
func (c *Client) Do(ctx context.Context, key string, f func(context.Context, *Held) error, options ...Option) (err error) {
	ctx = given(ctx)
	held, err := c.Lock(ctx, key, options...)
	if err != nil {
		return err
	}
	within, cancel := context.WithCancelCause(ctx)
	context.AfterFunc(held.Context(), func() { cancel(context.Cause(held.Context())) })
	defer func() {
		if gone := held.Release(context.WithoutCancel(ctx)); gone != nil && !errors.Is(err, gone) {
			err = errors.Join(err, gone)
		}
	}()
	return f(within, held)
}

func (c *Client) lock(ctx context.Context, params map[string]any, keys string, options []Option) (*Held, error) {
	ctx = given(ctx)
	for _, option := range options {
		params[option.name] = option.value
	}
	if !utf8.ValidString(keys) { // JSON would make one key of several
		return nil, failure(64, "", "the key %q is not UTF-8", keys)
	}
	s, err := c.live(ctx)
	if err != nil {
		return nil, err
	}
	sent, limit := time.Now(), watchInterval
	if wait, ok := params["wait"].(Seconds); ok {
		limit = min(limit, max(wait.Duration(), 0))
	}
	answer, err := s.call(ctx, limit+answerTimeout, "lock", params)
	if ctx.Err() != nil {
		err = fmt.Errorf("fencelock: lock: %w", context.Cause(ctx))
	} else if err == nil && time.Since(sent) < answer.Remaining.Duration()/2 {
		_, err = answer.held.count(answer.Remaining, sent)
	} else if err == nil { // what came with the grant may be as old as the request
		_, err = answer.held.Remaining(ctx)
	}
	if err == nil {
		return answer.held, nil
	} else if answer.isNew {
		_ = answer.held.Release(ctx)
	}
	return nil, err
}

// given takes a context that is nil for the background, so that a release is not lost to it.
func given(ctx context.Context) context.Context { return cmp.Or(ctx, context.Background()) }

// An Option changes how a key is locked. [Shared], [Limit] and [Slots] exclude each other.
type Option struct {
	name  string
	value any
}

// Wait limits the wait, from the receipt of the request by the server; then the error is [ErrBusy]. Zero tries once.
func Wait(limit time.Duration) Option { return Option{"wait", Seconds(limit.Seconds())} }

// TTL is after what time the key is free if the server and its backend lose each other, or if the server dies.
func TTL(ttl time.Duration) Option { return Option{"ttl", Seconds(ttl.Seconds())} }

// Shared lets others hold the key that ask for it with Shared too.
func Shared() Option { return Option{"mode", "shared"} }

// Limit makes the key a semaphore of so many permits. Everybody who uses the key must name the same number.
func Limit(permits int) Option { return Option{"limit", permits} }

// Permits takes so many permits of the [Limit] at once.
func Permits(permits int) Option { return Option{"permits", permits} }

// Slots takes one of so many numbered slots of the key: see [Held.Slot].
func Slots(slots int) Option { return Option{"slots", slots} }

// Label is shown to those who ask for the holder.
func Label(label string) Option { return Option{"label", label} }

// MaxHold is the time after which the lock counts as lost even if it could be renewed.
func MaxHold(limit time.Duration) Option { return Option{"max_hold", Seconds(limit.Seconds())} }

// Owner names who locks: a request for a key that the same owner has in this session is granted, with the same [Held], which is released
// once.
func Owner(name string) Option { return Option{"owner", name} }
