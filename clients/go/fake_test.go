//go:build linux

package fencelock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/clients/go"
)

// A request as a server reads it.
type request struct {
	ID     int
	Method string
	Params map[string]any
}

// script is a server for what a real one does at no certain time: it answers each request with lines, and the test sees the requests.
func script(t *testing.T, answer func(request) []string) (string, <-chan request) {
	t.Helper()
	path := filepath.Join(directory(t), "s")
	listener, err := net.Listen("unix", path)
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	seen := make(chan request, 100)
	go func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer socket.Close()
				for lines := bufio.NewScanner(socket); lines.Scan(); {
					var got request
					if json.Unmarshal(lines.Bytes(), &got) != nil {
						return
					}
					seen <- got
					replies := answer(got)
					if replies == nil && got.Method == "hello" {
						replies = []string{result(got.ID, `{"protocol":1,"version":"9.9.9","limits":{}}`)}
					}
					for _, reply := range replies {
						fmt.Fprintln(socket, reply)
					}
				}
			}()
		}
	}()
	return path, seen
}

func result(id int, text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, text)
}

func next(t *testing.T, seen <-chan request, method string) request {
	t.Helper()
	select {
	case got := <-seen:
		if got.Method != method {
			t.Fatalf("expected %s, got %v", method, got)
		}
		return got
	case <-time.After(soon):
		t.Fatal("no " + method)
		panic("unreachable")
	}
}

func TestAServerOfAnotherProtocolOrThatRefusesIsAnErrorThatSaysWhatToDo(t *testing.T) {
	for _, refusal := range []struct {
		answer string
		kind   error
		says   string
	}{
		{`{"id":1,"result":{"protocol":2,"version":"9.9.9"}}`, fencelock.ErrUsage, "9.9.9 with protocol 2"},
		{`{"id":1,"error":{"code":64,"message":"protocol 1 is not spoken here, but 2","data":{"advice":"update the client"}}}`, fencelock.ErrUsage, "update the client"},
		{`{"id":null,"error":{"code":-32001,"message":"the limit of 1 connections is reached"}}`, fencelock.ErrLimit, "limit of 1"},
		{`-ERR unknown command`, fencelock.ErrUnreachable, "is `fencelock serve`"},
		{`[]`, fencelock.ErrUnreachable, "is `fencelock serve`"},
	} {
		path, _ := script(t, func(request) []string { return []string{refusal.answer} })
		_, err := fencelock.Connect(background, path)
		mustBe(t, err, refusal.kind)
		if !strings.Contains(err.Error(), refusal.says) {
			t.Error(err)
		}
		t.Log(err)
	}
}

func TestAGrantThatComesAfterItsCancellationIsGivenBack(t *testing.T) {
	path, seen := script(t, func(got request) []string {
		if got.Method != "cancel" {
			return nil
		}
		grant := `{"hold":7,"key":"k","token":1,"remaining":30}`
		return []string{result(int(got.Params["id"].(float64)), grant), result(got.ID, grant)}
	})
	client := connect(t, path)
	next(t, seen, "hello")
	ctx, stop := context.WithTimeout(background, 50*time.Millisecond)
	defer stop()
	_, err := client.Lock(ctx, "k")
	mustBe(t, err, context.DeadlineExceeded)
	asked := next(t, seen, "lock")
	if cancelled := next(t, seen, "cancel"); cancelled.Params["id"] != float64(asked.ID) {
		t.Fatal(asked, cancelled)
	}
	if released := next(t, seen, "release"); released.Params["hold"] != 7.0 {
		t.Fatal(released)
	}
}

func TestALockThatIsLostAsSoonAsItIsGrantedIsLost(t *testing.T) {
	path, _ := script(t, func(got request) []string {
		if got.Method != "lock" {
			return nil
		}
		return []string{result(got.ID, `{"hold":7,"key":"k","token":1,"remaining":30}`),
			`{"jsonrpc":"2.0","method":"of a later protocol","params":{}}`,
			`{"jsonrpc":"2.0","method":"lost","params":{"hold":7,"key":"k","cause":"deleted"}}`}
	})
	held, err := connect(t, path).Lock(background, "k")
	if err == nil { // the loss was read later
		err = mustEnd(t, held, soon)
	}
	if lost := mustBe(t, err, fencelock.ErrLost); !strings.Contains(lost.Message, "deleted") {
		t.Fatal(lost)
	}
}

func TestTheRemainingTimeIsAskedAfterALongWaitAndAgainAfterHalfOfIt(t *testing.T) {
	t.Parallel()
	path, seen := script(t, func(got request) []string {
		switch got.Method {
		case "lock":
			time.Sleep(1100 * time.Millisecond)
			return []string{result(got.ID, `{"hold":7,"key":"k","token":1,"remaining":2}`)}
		case "remaining":
			return []string{result(got.ID, `{"remaining":2}`)}
		}
		return nil
	})
	client, begun := connect(t, path), time.Now()
	held, err := client.Lock(background, "k")
	must(t, err)
	next(t, seen, "hello")
	next(t, seen, "lock")
	select {
	case got := <-seen: // before Lock has returned
		if got.Method != "remaining" {
			t.Fatal(got)
		}
	default:
		t.Fatal("not asked")
	}
	next(t, seen, "remaining")
	next(t, seen, "remaining")
	if took := time.Since(begun); took < 3100*time.Millisecond {
		t.Fatal("asked after", took)
	}
	must(t, held.Context().Err())
}

func TestALockCountsAsLostWhenTheTimeThatItWasToldIsOver(t *testing.T) {
	t.Parallel()
	path, _ := script(t, func(got request) []string {
		if got.Method != "lock" {
			return nil
		}
		return []string{result(got.ID, `{"hold":7,"key":"k","token":1,"remaining":0.1}`)}
	})
	client, begun := connect(t, path), time.Now()
	held, err := client.Lock(background, "k")
	if err != nil { // the machine was so busy that the time was over before
		mustBe(t, err, fencelock.ErrLost)
		return
	}
	lost := mustBe(t, mustEnd(t, held, soon), fencelock.ErrLost)
	if took := time.Since(begun); took < 100*time.Millisecond || took > time.Second || !strings.Contains(lost.Message, "its time is over") {
		t.Fatal(took, lost)
	}
}

func TestAnAnswerThatComesAfterTheTimeIsOverDoesNotSayThatTheLockIsHeld(t *testing.T) {
	t.Parallel()
	path, _ := script(t, func(got request) []string {
		switch got.Method {
		case "lock":
			return []string{result(got.ID, `{"hold":7,"key":"k","token":1,"remaining":0.3}`)}
		case "remaining":
			time.Sleep(600 * time.Millisecond)
			return []string{result(got.ID, `{"remaining":30}`)}
		}
		return nil
	})
	held, err := connect(t, path).Lock(background, "k")
	if err == nil {
		_, err = held.Remaining(background)
	}
	mustBe(t, err, fencelock.ErrLost)
}

func TestALimitedWaitEndsAtAFrozenServerAndNotAtASlowBackend(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{-time.Second, 0, 2 * time.Second} {
		frozen, _ := script(t, func(request) []string { return nil })
		client, begun := connect(t, frozen), time.Now()
		_, err := client.Lock(background, "k", fencelock.Wait(wait))
		mustBe(t, err, fencelock.ErrUnreachable)
		if took := time.Since(begun); took < wait || took > wait+4*time.Second || !strings.Contains(err.Error(), "within 1s: is it frozen?") {
			t.Fatal(took, err)
		}
	}
	slow, seen := script(t, func(got request) []string {
		if got.Method != "cancel" {
			return nil
		}
		return []string{`{"id":2,"result":{"hold":7,"key":"k","token":1,"remaining":null}}`, result(got.ID, `{}`)}
	})
	held, err := connect(t, slow).TryLock(background, "k")
	must(t, err)
	must(t, held.Context().Err())
	for _, method := range []string{"hello", "lock", "cancel"} {
		next(t, seen, method)
	}
}

func TestACancelledWaitTakesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		held, client := lock(t, s.connect(t), "k"), s.connect(t)
		ctx, cancel := context.WithCancelCause(background)
		reason := errors.New("enough")
		failed := make(chan error, 1)
		go func() { _, err := client.Lock(ctx, "k"); failed <- err }()
		time.Sleep(50 * time.Millisecond)
		cancel(reason)
		mustBe(t, <-failed, reason)
		must(t, held.Release(background))
		lock(t, s.connect(t), "k")
	})
}

func TestNoGrantIsForgottenWhenWaitsAreCancelledAtTheMomentOfTheGrant(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		a, b := s.connect(t), s.connect(t)
		for i := range 60 {
			held := lock(t, a, "k")
			ctx, cancel := context.WithCancel(background)
			waited := make(chan *fencelock.Held, 1)
			go func() { late, _ := b.Lock(ctx, "k"); waited <- late }()
			time.Sleep(time.Millisecond)
			go held.Release(background)
			time.Sleep(time.Duration(i) * 20 * time.Microsecond)
			cancel()
			if late := <-waited; late != nil {
				must(t, late.Release(background))
			}
		}
		lock(t, a, "k")
	})
}

func TestACancelledWaitEndsTheSessionIfTheServerIsFrozen(t *testing.T) {
	t.Parallel()
	path, _ := script(t, func(request) []string { return nil })
	client := connect(t, path)
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := client.Lock(ctx, "k")
	mustBe(t, err, context.DeadlineExceeded)
	if took := time.Since(begun); took > 4*time.Second {
		t.Fatal(took)
	}
}

func TestACancelledRequestDoesNotGiveBackTheLockThatItsOwnerHas(t *testing.T) {
	grant := `{"hold":7,"key":"k","token":1,"remaining":30}`
	locks := 0
	path, seen := script(t, func(got request) []string {
		if locks++; got.Method == "lock" && locks == 2 {
			return []string{result(got.ID, grant)}
		} else if got.Method == "cancel" {
			return []string{result(int(got.Params["id"].(float64)), grant), result(got.ID, grant)}
		}
		return nil
	})
	client := connect(t, path)
	held, err := client.Lock(background, "k", fencelock.Owner("me"))
	must(t, err)
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	_, err = client.Lock(ctx, "k", fencelock.Owner("me"))
	mustBe(t, err, context.DeadlineExceeded)
	for _, method := range []string{"hello", "lock", "lock", "cancel"} {
		next(t, seen, method)
	}
	must(t, held.Context().Err())
}
