package fencelock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// longestLine is the size of a request from which on the server hangs up.
	longestLine = 65536
	// answerTimeout is how long a server that is not frozen needs at most to read, and to answer from its memory.
	answerTimeout = time.Second
	// exitTimeout is how long a child may need to release its locks.
	exitTimeout = 5 * time.Second
	// backendTimeout is for the start of a program on a busy machine, and for what its backend must confirm.
	backendTimeout = 10 * time.Second
	// watchInterval is the longest time between two questions whether the server still renews a lease, or lives.
	watchInterval = 15 * time.Second
)

// A session is one connection. What it holds is free when it ends.
type session struct {
	server  string          // as errors name it
	ctx     context.Context // ends the connection
	cancel  context.CancelCauseFunc
	gone    chan struct{} // closed when nothing is left of it
	to      io.WriteCloser
	writing sync.Mutex
	last    atomic.Int64

	mu      sync.Mutex
	pending map[int64]*request
	holds   map[int64]*Held
}

// A request is answered once.
type request struct {
	ctx      context.Context
	method   string
	answered chan struct{}
	reply
	held  *Held // by a lock
	isNew bool  // the hold, and not one of the same owner
	err   error
}

// reply has the members of all results, and those of the parameters of notifications.
type reply struct {
	Protocol, Slot      int
	Version, Key, Cause string
	Hold, Token         int64
	Keys                []string
	Tokens              []int64
	Remaining, Grace    Seconds
}

// open begins a session, over a socket or with a child.
func open(ctx context.Context, address string) (*session, error) {
	s := &session{server: address, gone: make(chan struct{}), pending: map[int64]*request{}, holds: map[int64]*Held{}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	connect := s.start
	if strings.HasPrefix(address, "unix:") {
		connect = s.dial
	}
	from, ended, err := connect(ctx, address)
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(s.gone)
		s.end(ended(s.read(from)))
	}()
	hello, err := s.call(ctx, backendTimeout, "hello", map[string]any{"protocol": 1, "client": "go/" + Version})
	if err == nil && hello.Protocol != 1 {
		const advice = "install program and client of the same release"
		err = failure(64, advice, "%s is version %s with protocol %d, not 1", s.server, hello.Version, hello.Protocol)
	}
	if err != nil {
		s.end(err)
		return nil, err
	}
	return s, nil
}

// dial returns where the server at a socket speaks, and what it means when it ends.
func (s *session) dial(ctx context.Context, address string) (io.Reader, func(error) *Error, error) {
	socket, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(address, "unix:"))
	if err != nil {
		advice := "start `fencelock serve --listen " + address + "`, or name the socket of another one by FENCELOCK_SOCKET"
		if errors.Is(err, os.ErrPermission) {
			advice = "its server admits a group with `--mode 0660 --group GROUP`"
		}
		return nil, nil, failure(69, advice, "no server, or one that is being stopped: %v", err)
	}
	s.to = socket
	context.AfterFunc(s.ctx, func() { socket.Close() })
	return socket, func(err error) *Error {
		const advice = "see that the server runs, and is `fencelock serve` of this release"
		return failure(69, advice, "the connection to %s ended: %v", address, err)
	}, nil
}

// start is dial for a child.
func (s *session) start(_ context.Context, url string) (io.Reader, func(error) *Error, error) {
	program, stderr := cmp.Or(os.Getenv("FENCELOCK_PROGRAM"), "fencelock"), new(tail)
	s.server = program + " serve --stdio"
	child := exec.CommandContext(s.ctx, program, "serve", "--stdio")
	child.WaitDelay, child.Stderr = exitTimeout, stderr
	if url != "" { // not as an argument, which other users see, because it may contain a password
		child.Env = append(os.Environ(), "FENCELOCK_URL="+url)
	}
	to, noInput := child.StdinPipe()
	from, noOutput := child.StdoutPipe()
	if err := errors.Join(noInput, noOutput); err != nil {
		return nil, nil, err
	}
	s.to, child.Cancel = to, to.Close
	if err := child.Start(); err != nil {
		const advice = "install fencelock, or name it by FENCELOCK_PROGRAM, or the socket of a server by FENCELOCK_SOCKET"
		return nil, nil, failure(64, advice, "no program: %v", err)
	}
	return from, func(error) *Error {
		_ = child.Wait()
		code := 69
		if child.ProcessState.ExitCode() == 64 { // its settings
			code = 64
		}
		said := bytes.TrimSpace(*stderr)
		return failure(code, "see `fencelock serve --help`", "%s ended (%v): %s", s.server, child.ProcessState, said)
	}, nil
}

// tail is the end of what was written.
type tail []byte

func (t *tail) Write(text []byte) (int, error) {
	*t = append(*t, text...)
	*t = (*t)[max(0, len(*t)-2000):]
	return len(text), nil
}

// read handles the messages of the server, and returns why there are no more.
func (s *session) read(from io.Reader) error {
	for messages := json.NewDecoder(from); ; {
		var message struct {
			ID             int64 // 0 if it is about no request
			Method         string
			Params, Result reply
			Error          *Error
		}
		message.Result.Slot, message.Result.Remaining = -1, endless
		if err := messages.Decode(&message); err != nil {
			return err
		} else if message.ID == 0 && message.Error != nil { // the server hangs up
			s.end(message.Error)
		}
		s.mu.Lock()
		told := message.Params
		if request := s.pending[message.ID]; request != nil && s.ctx.Err() == nil {
			delete(s.pending, message.ID)
			request.answer(s, message.Result, message.Error)
		} else if held := s.holds[told.Hold]; message.Method == "lost" && held != nil {
			held.end(lost(told.Key, told.Cause))
		} else if message.Method == "ending" {
			for _, held := range s.holds {
				const why = "%s is being stopped, %q will be lost in %v"
				held.cancel(failure(71, "release the lock", why, s.server, held.Key(), told.Grace.Duration()))
			}
		}
		s.mu.Unlock()
	}
}

// answer ends a request. A grant becomes a hold before the next message, which may be its loss, is read. With the mutex.
func (r *request) answer(s *session, result reply, failed *Error) {
	r.reply, r.held = result, s.holds[result.Hold]
	if failed != nil {
		r.err = failed
	} else if r.method == "lock" && r.held == nil {
		r.held, r.isNew = newHeld(r.ctx, s, result), true
	}
	close(r.answered)
}

// call sends a request, even if ctx is done, and waits for the answer: until the limit, except for a lock, which may take long. That is
// withdrawn when ctx is done, and answered then.
func (s *session) call(ctx context.Context, limit time.Duration, method string, params map[string]any) (*request, error) {
	id, request := s.last.Add(1), &request{ctx: ctx, method: method, answered: make(chan struct{})}
	line, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if len(line) >= longestLine {
		return request, failure(64, "use fewer or shorter keys", "%s reads no request of %d bytes", s.server, len(line))
	}
	s.mu.Lock()
	s.pending[id] = request
	s.mu.Unlock()
	s.write(append(line, '\n'))
	silence := time.NewTicker(limit)
	defer silence.Stop()
	for done := ctx.Done(); ; {
		select {
		case <-request.answered:
			return request, request.err
		case <-s.ctx.Done():
			return request, context.Cause(s.ctx)
		case <-silence.C:
			if method != "lock" {
				return request, failure(69, "is it frozen?", "no answer from %s within %v", s.server, limit)
			}
			go s.withdraw(0)
		case <-done:
			if method != "lock" {
				return request, fmt.Errorf("fencelock: %s: %w", method, context.Cause(ctx))
			}
			go s.withdraw(id)
			done = nil
		}
	}
}

// withdraw ends the wait for a lock; of no request with the number 0. The session ends if the server does not answer at once, as it does
// from its memory: it is frozen, and not its backend slow.
func (s *session) withdraw(id int64) {
	_, err := s.call(context.Background(), answerTimeout, "cancel", map[string]any{"id": id})
	if errors.Is(err, ErrUnreachable) {
		s.end(err)
	}
}

func (s *session) write(line []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	frozen := failure(69, "is it frozen?", "%s does not read", s.server)
	defer time.AfterFunc(answerTimeout, func() { s.end(frozen) }).Stop()
	_, _ = s.to.Write(line) // the reader meets an error too, after what the server has said of it
}

// end closes the connection: requests fail, holds are lost.
func (s *session) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel(why)
	for _, held := range s.holds {
		held.end(lost(held.Key(), why))
	}
}
