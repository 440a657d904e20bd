package fencelock

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// What [errors.Is] finds in the errors of this package. [errors.As] with an [*Error] finds the details.
var (
	// ErrBusy: another holder has the key, and the wait is over.
	ErrBusy = errors.New("fencelock: busy")
	// ErrLost: the lock was held and is no longer, or it is unknown whether it is.
	ErrLost = errors.New("fencelock: lost")
	// ErrUnreachable: no answer, from the server or from its backend. Try again later.
	ErrUnreachable = errors.New("fencelock: unreachable")
	// ErrUsage: a value or a setting is invalid. Trying again does not help.
	ErrUsage = errors.New("fencelock: usage")
	// ErrLimit: the session has as many requests or holds as the server allows.
	ErrLimit = errors.New("fencelock: limit")
	// ErrEnding: the server is being stopped. As the cause of [Held.Context]: the lock is held for a grace period, to be released.
	ErrEnding = errors.New("fencelock: the server is being stopped")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("fencelock: the client was closed")
)

// The errors for the codes of the protocol.
var kinds = map[int]error{64: ErrUsage, 69: ErrUnreachable, 71: ErrEnding, 75: ErrBusy, 76: ErrLost, -32001: ErrLimit,
	-32600: ErrUsage, -32601: ErrUsage, -32602: ErrUsage, -32700: ErrUsage}

// An Error says what happened, and what to do.
type Error struct {
	Code    int // of the protocol; 64 to 76 are the exit statuses of the program
	Message string
	Details `json:"data"`
}

// Details are what is known about an error.
type Details struct {
	Key       string
	Holder    *Holder // who has the key; nil if unknown
	Remaining Seconds // after which the lease of the holder ends if it is not renewed; 0 if unknown
	Waited    Seconds // for which the request has waited
	Advice    string  // what to do
}

// A Holder is the process that has a key.
type Holder struct {
	Host, Label, Name string
	PID               int
}

// Seconds are a span of time in the protocol.
type Seconds float64

// endless are those of a lock that does not expire.
const endless Seconds = math.MaxInt64 / 2 / 1e9

// Duration returns the span.
func (s Seconds) Duration() time.Duration { return time.Duration(min(s, endless) * 1e9) }

func (e *Error) Error() string {
	return strings.TrimSuffix("fencelock: "+e.Message+": "+e.Advice, ": ")
}

// Unwrap returns one of the errors of this package, such as [ErrBusy].
func (e *Error) Unwrap() error { return kinds[e.Code] }

func failure(code int, advice, format string, values ...any) *Error {
	return &Error{code, fmt.Sprintf(format, values...), Details{Advice: advice}}
}

func lost(key string, cause any) *Error {
	const advice = "stop, what it protects may have another holder"
	lost := failure(76, advice, "the lock on %q was lost: %s", key, strings.TrimPrefix(fmt.Sprint(cause), "fencelock: "))
	lost.Key = key
	return lost
}
