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
	protocol = 1
	// longestLine is the size of a request from which on the server hangs up.
	longestLine = 65536
	// answerTimeout is how long a server that is not frozen needs at most to read, and to answer from its memory.
	answerTimeout = time.Second
	// helloTimeout is for the start of a program on a busy machine.
	helloTimeout = 10 * time.Second
	// exitTimeout is how long a child may need to release its locks.
	exitTimeout = 5 * time.Second
)

// A session is one connection. What it holds is free when it ends.
type session struct {
	server string          // as errors name it
	ctx    context.Context // ends the connection
	cancel context.CancelCauseFunc
	gone   chan struct{} // closed when nothing is left of it
	to     interface {
		io.Writer
		SetWriteDeadline(time.Time) error
	}
	writing sync.Mutex
	last    atomic.Int64

	mu      sync.Mutex
	pending map[int64]*request
	holds   map[int64]*Held
}

// A request is answered once.
type request struct {
	ctx       context.Context
	method    string
	withdrawn bool // nobody waits: a grant is given back
	answered  chan struct{}
	reply
	held *Held // by a lock
	err  error
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

func newSession(server string) *session {
	s := &session{server: server, gone: make(chan struct{}), pending: map[int64]*request{}, holds: map[int64]*Held{}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// dial begins a session over a socket.
func dial(ctx context.Context, path string) (*session, error) {
	socket, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, failure(69, fmt.Sprintf("start `fencelock serve --listen unix:%s`, or name the socket of a running server by FENCELOCK_SOCKET", path), "no server, or one that is being stopped: %v", err)
	}
	s := newSession("unix:" + path)
	s.to = socket
	context.AfterFunc(s.ctx, func() { socket.Close() })
	return s, s.open(ctx, socket, func(err error) *Error {
		return failure(69, "see that the server runs, and is `fencelock serve` of this release", "the connection to %s ended: %v", s.server, err)
	})
}

// start begins a session with a child.
func start(ctx context.Context, url string) (*session, error) {
	program := cmp.Or(os.Getenv("FENCELOCK_PROGRAM"), "fencelock")
	s := newSession(program + " serve --stdio")
	child := exec.CommandContext(s.ctx, program, "serve", "--stdio")
	child.WaitDelay = exitTimeout
	stderr := new(tail)
	child.Stderr = stderr
	if url != "" { // not as an argument, which other users see, because it may contain a password
		child.Env = append(os.Environ(), "FENCELOCK_URL="+url)
	}
	stdin, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	child.Stdin, child.Cancel, s.to = stdin, to.Close, to
	from, _ := child.StdoutPipe()
	if err := child.Start(); err != nil {
		to.Close()
		return nil, failure(64, "install fencelock, or name the program by FENCELOCK_PROGRAM, or the socket of a server by FENCELOCK_SOCKET", "no program: %v", err)
	}
	return s, s.open(ctx, from, func(error) *Error {
		_ = child.Wait()
		code := 69
		if child.ProcessState.ExitCode() == 64 { // its settings
			code = 64
		}
		return failure(code, "see `fencelock serve --help`", "%s ended (%v): %s", s.server, child.ProcessState, bytes.TrimSpace(*stderr))
	})
}

// tail is the end of what was written.
type tail []byte

func (t *tail) Write(text []byte) (int, error) {
	*t = append(*t, text...)
	*t = (*t)[max(0, len(*t)-2000):]
	return len(text), nil
}

// open says hello. When nothing more can be read, ended makes it the end of the session.
func (s *session) open(ctx context.Context, from io.Reader, ended func(error) *Error) error {
	go func() {
		defer close(s.gone)
		s.end(ended(s.read(from)))
	}()
	hello, err := s.call(ctx, helloTimeout, "hello", map[string]any{"protocol": protocol, "client": "go/" + Version})
	if err == nil && hello.Protocol != protocol {
		err = failure(64, "install program and client of the same release", "%s is version %s with protocol %d, this client is %s with %d", s.server, hello.Version, hello.Protocol, Version, protocol)
	}
	if err != nil {
		s.end(err)
	}
	return err
}

// read handles the messages of the server, and returns why there are no more.
func (s *session) read(from io.Reader) error {
	for messages := json.NewDecoder(from); ; {
		var message struct {
			ID             *int64
			Method         string
			Params, Result reply
			Error          *Error
		}
		message.Result.Slot, message.Result.Remaining = -1, endless
		if err := messages.Decode(&message); err != nil {
			return err
		} else if message.ID == nil && message.Error != nil { // the server hangs up
			s.end(message.Error)
		}
		told := message.Params
		s.mu.Lock()
		switch held := s.holds[told.Hold]; {
		case message.ID != nil:
			s.answer(*message.ID, message.Result, message.Error)
		case message.Method == "lost" && held != nil:
			held.end(lost(told.Key, told.Cause))
		case message.Method == "ending":
			for _, held := range s.holds {
				held.cancel(failure(71, "release the lock", "%s is being stopped, %q will be lost in %v", s.server, held.Key(), told.Grace.Duration()))
			}
		}
		s.mu.Unlock()
	}
}

// answer ends a request. A grant becomes a hold before the next message, which may be its loss, is read. With the mutex.
func (s *session) answer(id int64, result reply, failed *Error) {
	request := s.pending[id]
	if request == nil || s.ctx.Err() != nil {
		return
	}
	delete(s.pending, id)
	request.reply, request.held = result, s.holds[result.Hold]
	if failed != nil {
		request.err = failed
	} else if request.method == "lock" && request.held == nil {
		request.held = newHeld(request.ctx, s, result)
		if request.withdrawn {
			go request.held.Release(context.Background())
		}
	}
	close(request.answered)
}

// call sends a request, even if ctx is done, and waits for the answer. A lock is withdrawn if nobody waits for it any longer.
func (s *session) call(ctx context.Context, limit time.Duration, method string, params map[string]any) (*request, error) {
	id, request := s.last.Add(1), &request{ctx: ctx, method: method, answered: make(chan struct{})}
	line, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if len(line) >= longestLine {
		return nil, failure(64, "use fewer or shorter keys", "%s reads no request of %d bytes", s.server, len(line))
	}
	ctx, stop := context.WithTimeoutCause(ctx, limit, failure(69, "is it frozen?", "no answer from %s within %v", s.server, limit))
	defer stop()
	s.mu.Lock()
	s.pending[id] = request
	s.mu.Unlock()
	s.write(append(line, '\n'))
	patience := watchInterval
	if wait, ok := params["wait"].(Seconds); ok {
		patience = min(patience, max(wait.Duration(), 0))
	}
	silence := time.NewTicker(patience + answerTimeout)
	defer silence.Stop()
	for {
		select {
		case <-request.answered:
			return request, request.err
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		case <-silence.C:
			go s.probe()
		case <-ctx.Done():
			return s.withdraw(id, request, context.Cause(ctx))
		}
	}
}

// probe ends the session if the server does not answer what it can answer from its memory: it is frozen, and not its backend slow.
func (s *session) probe() {
	if _, err := s.call(context.Background(), answerTimeout, "remaining", map[string]any{"hold": 0}); errors.Is(err, ErrUnreachable) {
		s.end(err)
	}
}

// withdraw ends the wait for an answer, unless it is there.
func (s *session) withdraw(id int64, asked *request, why error) (*request, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[id] == nil {
		return asked, asked.err
	}
	asked.withdrawn = true
	if asked.method == "lock" {
		go s.call(context.Background(), answerTimeout, "cancel", map[string]any{"id": id})
	}
	return nil, fmt.Errorf("fencelock: %s: %w", asked.method, why)
}

func (s *session) write(line []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = s.to.SetWriteDeadline(time.Now().Add(answerTimeout))
	// Another error is met by the reader too, after what the server has said of it.
	if _, err := s.to.Write(line); errors.Is(err, os.ErrDeadlineExceeded) {
		s.end(failure(69, "is it frozen?", "%s does not read", s.server))
	}
}

// end closes the connection: requests fail, holds are lost.
func (s *session) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel(why)
	for _, held := range s.holds {
		held.end(lost(held.Key(), strings.TrimPrefix(why.Error(), "fencelock: ")))
	}
}
