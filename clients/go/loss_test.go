//go:build linux

package fencelock_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/clients/go"
)

// mustEnd waits for the end of a lock's context, and returns the cause.
func mustEnd(t *testing.T, held *fencelock.Held, within time.Duration) error {
	t.Helper()
	select {
	case <-held.Context().Done():
		return context.Cause(held.Context())
	case <-time.After(within):
		t.Fatal("the context has not ended within", within)
		return nil
	}
}

// deleteAll deletes what a server of Redis has about a key.
func deleteAll(t *testing.T, redis func(...string) string, key string) {
	t.Helper()
	if reply := redis("EVAL", "local n = 0 for _, k in ipairs(redis.call('KEYS', '*'..ARGV[1]..'*')) do n = n + redis.call('DEL', k) end return n", "0", key); reply == ":0\r\n" || !strings.HasPrefix(reply, ":") {
		t.Fatal(reply)
	}
}

func TestALockIsLostWhenItsKeyIsDeleted(t *testing.T) {
	url, redis := redis(t)
	client := serve(t, url).connect(t)
	held, other := lock(t, client, "doomed", fencelock.TTL(2*time.Second)), lock(t, client, "other")
	deleteAll(t, redis, "doomed")
	cause := mustEnd(t, held, soon)
	mustBe(t, cause, fencelock.ErrLost)
	for range 2 {
		if lost := mustBe(t, held.Release(background), fencelock.ErrLost); lost.Key != "doomed" {
			t.Fatalf("%+v", lost)
		}
	}
	_, err := held.Remaining(background)
	mustBe(t, err, fencelock.ErrLost)
	must(t, other.Release(background))
}

func TestTheOtherKeysOfALostLockAreHeldUntilItsRelease(t *testing.T) {
	url, redis := redis(t)
	client := serve(t, url).connect(t)
	held, err := client.LockAll(background, []string{"doomed", "other"}, fencelock.TTL(2*time.Second))
	must(t, err)
	deleteAll(t, redis, "doomed")
	mustEnd(t, held, soon)
	_, err = client.TryLock(background, "other")
	mustBe(t, err, fencelock.ErrBusy)
	mustBe(t, held.Release(background), fencelock.ErrLost)
	must(t, lock(t, client, "other").Release(background))
}

func TestABlockThatHasLostItsLockFailsEvenIfItReturnsNil(t *testing.T) {
	url, redis := redis(t)
	client := serve(t, url).connect(t)
	err := client.Do(background, "doomed", func(ctx context.Context, held *fencelock.Held) error {
		deleteAll(t, redis, "doomed")
		<-ctx.Done()
		mustBe(t, context.Cause(ctx), fencelock.ErrLost)
		return nil
	}, fencelock.TTL(2*time.Second))
	mustBe(t, err, fencelock.ErrLost)
	failed := errors.New("failed")
	err = client.Do(background, "doomed", func(ctx context.Context, held *fencelock.Held) error {
		deleteAll(t, redis, "doomed")
		<-ctx.Done()
		return failed
	}, fencelock.TTL(2*time.Second))
	mustBe(t, err, fencelock.ErrLost)
	mustBe(t, err, failed)
}

func TestALossIsNoticedByTheReleaseIfNotBefore(t *testing.T) {
	url, redis := redis(t)
	held := lock(t, serve(t, url).connect(t), "doomed")
	deleteAll(t, redis, "doomed")
	mustBe(t, held.Release(background), fencelock.ErrLost)
}

func TestAllLocksAreLostWhenTheServerIsKilledAndTheNextOneConnectsAgain(t *testing.T) {
	url, _ := redis(t)
	s := serve(t, url)
	client := s.connect(t)
	first, second := lock(t, client, "a", fencelock.TTL(time.Second)), lock(t, client, "b", fencelock.TTL(time.Second))
	waiting := make(chan error, 1)
	go func() { _, err := client.Lock(background, "a"); waiting <- err }()
	s.Process.Kill()
	mustBe(t, mustEnd(t, first, soon), fencelock.ErrLost)
	mustBe(t, second.Release(background), fencelock.ErrLost)
	mustBe(t, <-waiting, fencelock.ErrUnreachable)
	_, err := client.TryLock(background, "a")
	mustBe(t, err, fencelock.ErrUnreachable)
	s.run(t, url)
	if again := lock(t, client, "a"); again.Token() <= first.Token() {
		t.Fatal(first.Token(), again.Token())
	}
}

func TestALockIsLostWhenAChildIsKilledAndTheNextOneStartsAnother(t *testing.T) {
	client := connect(t, "file:"+directory(t))
	held := lock(t, client, "k")
	before := servers()
	if len(before) != 1 {
		t.Fatal(before)
	}
	syscall.Kill(before[0], syscall.SIGKILL)
	lost := mustBe(t, mustEnd(t, held, soon), fencelock.ErrLost)
	if !strings.Contains(lost.Message, "killed") {
		t.Fatal(lost)
	}
	lock(t, client, "k")
	if after := servers(); len(after) != 1 || after[0] == before[0] {
		t.Fatal(before, after)
	}
}

func TestALockIsLostWhenTheServerDoesNotAnswerWithinASecond(t *testing.T) {
	for _, backend := range []string{"file", "redis"} {
		t.Run(backend, func(t *testing.T) {
			url := "file:" + directory(t)
			if backend == "redis" {
				url, _ = redis(t)
			}
			s := serve(t, url)
			client, other := s.connect(t), s.connect(t)
			held := lock(t, client, "k")
			_, err := held.Remaining(background)
			must(t, err)
			s.Process.Signal(syscall.SIGSTOP)
			// A caller that asks for less time learns nothing.
			ctx, stop := context.WithTimeout(background, 50*time.Millisecond)
			defer stop()
			_, err = held.Remaining(ctx)
			mustBe(t, err, context.DeadlineExceeded)
			if held.Context().Err() != nil {
				t.Fatal(context.Cause(held.Context()))
			}
			begun := time.Now()
			_, err = held.Remaining(background)
			mustBe(t, err, fencelock.ErrLost)
			if took := time.Since(begun); took < 900*time.Millisecond || took > 3*time.Second {
				t.Fatal(took)
			}
			mustBe(t, mustEnd(t, held, time.Second), fencelock.ErrLost)
			// The server must not keep it when it goes on.
			s.Process.Signal(syscall.SIGCONT)
			lock(t, other, "k")
			mustBe(t, held.Release(background), fencelock.ErrLost)
		})
	}
}

func TestALockIsLostBeforeItsLeaseEndsWhenTheServerIsFrozenAndNobodyAsks(t *testing.T) {
	url, _ := redis(t)
	s := serve(t, url)
	client := s.connect(t)
	const ttl = 3 * time.Second
	held := lock(t, client, "k", fencelock.TTL(ttl))
	s.Process.Signal(syscall.SIGSTOP)
	frozen := time.Now()
	mustBe(t, mustEnd(t, held, ttl), fencelock.ErrLost)
	t.Log("noticed after", time.Since(frozen))
	begun := time.Now()
	mustBe(t, held.Release(background), fencelock.ErrLost)
	if took := time.Since(begun); took > time.Second {
		t.Fatal("a release of a lost lock waits", took)
	}
}

func TestAHolderIsToldThatTheServerEndsWhileItStillHolds(t *testing.T) {
	dir := directory(t)
	s := serve(t, "file:"+dir)
	client, other := s.connect(t), serve(t, "file:"+dir).connect(t)
	held := lock(t, client, "k")
	s.Process.Signal(syscall.SIGTERM)
	mustBe(t, mustEnd(t, held, soon), fencelock.ErrEnding)
	_, err := other.TryLock(background, "k")
	mustBe(t, err, fencelock.ErrBusy)
	_, err = client.TryLock(background, "another")
	mustBe(t, err, fencelock.ErrEnding)
	must(t, held.Release(background))
	lock(t, other, "k")
}

func TestAHolderThatIgnoresTheEndOfTheServerLosesItsLock(t *testing.T) {
	s := serve(t, "file:"+directory(t), "--grace", "300ms")
	held := lock(t, s.connect(t), "k")
	s.Process.Signal(syscall.SIGTERM)
	mustBe(t, mustEnd(t, held, soon), fencelock.ErrEnding)
	eventually(t, "the lock is lost", func() bool {
		_, err := held.Remaining(background)
		return errors.Is(err, fencelock.ErrLost)
	})
	mustBe(t, held.Release(background), fencelock.ErrLost)
}

func TestAReleaseThatIsNotConfirmedIsAnError(t *testing.T) {
	s := serve(t, "file:"+directory(t))
	held := lock(t, s.connect(t), "k")
	s.Process.Signal(syscall.SIGSTOP)
	ctx, stop := context.WithTimeout(background, 100*time.Millisecond)
	defer stop()
	mustBe(t, held.Release(ctx), context.DeadlineExceeded)
}

func TestAServerThatDoesNotReadEndsTheSession(t *testing.T) {
	url, _ := redis(t)
	s := serve(t, url)
	client := s.connect(t)
	held := lock(t, client, "k")
	s.Process.Signal(syscall.SIGSTOP)
	ctx, stop := context.WithTimeout(background, soon)
	defer stop()
	// Requests that come meanwhile give it no more time.
	for label := fencelock.Label(strings.Repeat("x", 60_000)); held.Context().Err() == nil && ctx.Err() == nil; {
		go client.Lock(ctx, "k", label)
		time.Sleep(time.Millisecond)
	}
	must(t, ctx.Err())
	lost := mustBe(t, mustEnd(t, held, soon), fencelock.ErrLost)
	if !strings.Contains(lost.Message, "does not read") {
		t.Fatal(lost)
	}
}

func TestALockIsLostWhenItsLongestHoldIsOver(t *testing.T) {
	held := lock(t, serve(t, "file:"+directory(t)).connect(t), "k", fencelock.MaxHold(100*time.Millisecond))
	mustBe(t, mustEnd(t, held, soon), fencelock.ErrLost)
	mustBe(t, held.Release(background), fencelock.ErrLost)
}
