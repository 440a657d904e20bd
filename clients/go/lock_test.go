//go:build linux

package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/clients/go"
)

func TestOneSessionHoldsAKeyAndTheTokensGrow(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		a, b := s.connect(t), s.connect(t)
		first := lock(t, a, "k")
		if _, err := b.TryLock(background, "k"); !errors.Is(err, fencelock.ErrBusy) {
			t.Fatal(err)
		}
		must(t, first.Release(background))
		second, err := b.TryLock(background, "k")
		must(t, err)
		if second.Token() <= first.Token() || second.Key() != "k" || second.Slot() != -1 {
			t.Fatal(first.Token(), second.Token(), second.Key(), second.Slot())
		}
	})
}

func TestABusyErrorNamesTheHolderAndTheTimeLeft(t *testing.T) {
	url, _ := redis(t)
	s := serve(t, url)
	lock(t, s.connect(t), "k", fencelock.Label("nightly"), fencelock.TTL(20*time.Second))
	begun := time.Now()
	_, err := s.connect(t).Lock(background, "k", fencelock.Wait(200*time.Millisecond))
	busy := mustBe(t, err, fencelock.ErrBusy)
	if waited := time.Since(begun); waited < 200*time.Millisecond {
		t.Fatal("waited only", waited)
	}
	left := busy.Remaining.Duration()
	if busy.Code != 75 || busy.Key != "k" || busy.Holder == nil || busy.Holder.PID != s.Process.Pid || busy.Holder.Label != "nightly" ||
		left <= 0 || left > 20*time.Second || busy.Waited.Duration() < 190*time.Millisecond || busy.Advice == "" {
		t.Fatalf("%+v", busy)
	}
	if text := err.Error(); !strings.Contains(text, busy.Holder.Host) || !strings.Contains(text, busy.Advice) {
		t.Fatal(text)
	}
}

func TestAWaitIsGrantedAtTheRelease(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		held := lock(t, s.connect(t), "k")
		second := make(chan error, 1)
		b := s.connect(t)
		go func() {
			held, err := b.Lock(background, "k", fencelock.Wait(soon))
			if err == nil {
				err = held.Release(background)
			}
			second <- err
		}()
		select {
		case err := <-second:
			t.Fatal("granted before the release", err)
		case <-time.After(100 * time.Millisecond):
		}
		must(t, held.Release(background))
		must(t, <-second)
	})
}

func TestSeveralKeysAreAllHeldOrNone(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		a, b := s.connect(t), s.connect(t)
		held, err := a.LockAll(background, []string{"x", "y"}, fencelock.Wait(soon))
		must(t, err)
		if !slices.Equal(held.Keys(), []string{"x", "y"}) || len(held.Tokens()) != 2 || held.Token() != held.Tokens()[0] {
			t.Fatal(held.Keys(), held.Tokens())
		}
		_, err = b.LockAll(background, []string{"w", "y"}, fencelock.Wait(0))
		mustBe(t, err, fencelock.ErrBusy)
		must(t, lock(t, b, "w", fencelock.Wait(0)).Release(background))
		must(t, held.Release(background))
		lock(t, b, "y", fencelock.Wait(0))
	})
}

func TestSharedLocksExcludeExclusiveOnes(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		a, b := s.connect(t), s.connect(t)
		first, second := lock(t, a, "k", fencelock.Shared()), lock(t, b, "k", fencelock.Shared(), fencelock.Wait(0))
		_, err := s.connect(t).TryLock(background, "k")
		mustBe(t, err, fencelock.ErrBusy)
		must(t, first.Release(background))
		must(t, second.Release(background))
		lock(t, a, "k", fencelock.Wait(0))
	})
}

func TestASemaphoreHasSoManyPermits(t *testing.T) {
	url, _ := redis(t)
	s := serve(t, url)
	a, b := s.connect(t), s.connect(t)
	two := lock(t, a, "k", fencelock.Limit(3), fencelock.Permits(2))
	lock(t, b, "k", fencelock.Limit(3), fencelock.Wait(0))
	_, err := b.TryLock(background, "k", fencelock.Limit(3))
	mustBe(t, err, fencelock.ErrBusy)
	must(t, two.Release(background))
	lock(t, b, "k", fencelock.Limit(3), fencelock.Permits(2), fencelock.Wait(0))
}

func TestEachSlotIsGrantedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		a, b := s.connect(t), s.connect(t)
		slots := []int{lock(t, a, "k", fencelock.Slots(2)).Slot(), lock(t, b, "k", fencelock.Slots(2)).Slot()}
		if slots[0] == slots[1] || slices.Min(slots) < 0 {
			t.Fatal(slots)
		}
		_, err := b.TryLock(background, "k", fencelock.Slots(2))
		mustBe(t, err, fencelock.ErrBusy)
	})
}

func TestRemainingIsATimeOrEndless(t *testing.T) {
	url, _ := redis(t)
	left, err := lock(t, serve(t, url).connect(t), "k", fencelock.TTL(5*time.Second)).Remaining(background)
	if err != nil || left <= time.Second || left > 5*time.Second {
		t.Fatal(left, err)
	}
	left, err = lock(t, serve(t, "file:"+directory(t)).connect(t), "k").Remaining(background)
	if err != nil || left < 100*365*24*time.Hour {
		t.Fatal(left, err)
	}
}

func TestALockIsHeldLongerThanItsLease(t *testing.T) {
	t.Parallel()
	url, _ := redis(t)
	s := serve(t, url)
	held := lock(t, s.connect(t), "k", fencelock.TTL(2*time.Second))
	select {
	case <-held.Context().Done():
		t.Fatal(context.Cause(held.Context()))
	case <-time.After(4500 * time.Millisecond):
	}
	_, err := s.connect(t).TryLock(background, "k")
	mustBe(t, err, fencelock.ErrBusy)
	must(t, held.Release(background))
}

func TestTheSameOwnerGetsTheLockThatItHolds(t *testing.T) {
	client := serve(t, "file:"+directory(t)).connect(t)
	owned := fencelock.Owner("me")
	first, again := lock(t, client, "k", owned), lock(t, client, "k", owned, fencelock.Wait(0))
	if first != again {
		t.Fatal("another lock")
	}
	_, err := client.TryLock(background, "k")
	mustBe(t, err, fencelock.ErrBusy)
	must(t, again.Release(background))
	lock(t, client, "k", fencelock.Wait(0))
}

func TestGoroutinesExcludeEachOther(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		client := s.connect(t)
		number := 0 // The race detector sees it if two of them are in the block.
		var group sync.WaitGroup
		for range 16 {
			group.Add(1)
			go func() {
				defer group.Done()
				for range 10 {
					if err := client.Do(background, "k", func(context.Context, *fencelock.Held) error { number++; return nil }); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		group.Wait()
		if number != 160 {
			t.Fatal(number)
		}
	})
}

func TestProcessesExcludeEachOther(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		counter := filepath.Join(directory(t), "counter")
		must(t, os.WriteFile(counter, []byte("0"), 0o600))
		var group sync.WaitGroup
		for range 4 {
			group.Add(1)
			go func() {
				defer group.Done()
				if output, err := role("count", s.path, counter).Output(); err != nil {
					t.Errorf("%v: %s", err, output)
				}
			}()
		}
		group.Wait()
		if text, _ := os.ReadFile(counter); string(text) != "100" {
			t.Fatalf("%s", text)
		}
	})
}

func TestABlockThatFailsOrPanicsReleases(t *testing.T) {
	s := serve(t, "file:"+directory(t))
	client, other := s.connect(t), s.connect(t)
	failed := errors.New("failed")
	if err := client.Do(background, "k", func(context.Context, *fencelock.Held) error { return failed }); err != failed {
		t.Fatal(err)
	}
	lock(t, other, "k", fencelock.Wait(0)).Release(background)
	func() {
		defer func() {
			if recovered := recover(); recovered != "panicked" {
				t.Fatal(recovered)
			}
		}()
		client.Do(background, "k", func(context.Context, *fencelock.Held) error { panic("panicked") })
	}()
	lock(t, other, "k", fencelock.Wait(0))
}

func TestTheContextOfABlockEndsWithThatOfItsCallerAndTheLockIsReleased(t *testing.T) {
	s := serve(t, "file:"+directory(t))
	ctx, cancel := context.WithCancelCause(background)
	reason := errors.New("enough")
	err := s.connect(t).Do(ctx, "k", func(ctx context.Context, held *fencelock.Held) error {
		cancel(reason)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if err != reason {
		t.Fatal(err)
	}
	lock(t, s.connect(t), "k", fencelock.Wait(0))
}

func TestALockOutlivesTheContextThatItWasAskedWithAndHasItsValues(t *testing.T) {
	type name struct{}
	ctx, cancel := context.WithCancel(context.WithValue(background, name{}, "value"))
	held, err := serve(t, "file:"+directory(t)).connect(t).Lock(ctx, "k")
	must(t, err)
	cancel()
	if held.Context().Err() != nil || held.Context().Value(name{}) != "value" {
		t.Fatal(held.Context())
	}
	must(t, held.Release(background))
}

func TestAReleaseIsSentEvenIfTheContextIsDone(t *testing.T) {
	s := serve(t, "file:"+directory(t))
	held := lock(t, s.connect(t), "k")
	ctx, cancel := context.WithCancel(background)
	cancel()
	held.Release(ctx)
	lock(t, s.connect(t), "k")
	if cause := context.Cause(held.Context()); cause != context.Canceled {
		t.Fatal(cause)
	}
}

func TestAReleasedLockHasNoTimeAndIsReleasedOnce(t *testing.T) {
	s := serve(t, "file:"+directory(t))
	held := lock(t, s.connect(t), "k")
	must(t, held.Release(background))
	next := lock(t, s.connect(t), "k", fencelock.Wait(0))
	must(t, held.Release(background))
	_, err := held.Remaining(background)
	mustBe(t, err, fencelock.ErrUsage)
	_, err = next.Remaining(background)
	must(t, err)
}

func TestARequestThatTheServerCannotReadIsNotSent(t *testing.T) {
	client := serve(t, "file:"+directory(t)).connect(t)
	held := lock(t, client, "k")
	for _, key := range []string{strings.Repeat("x", 70_000), "\xff"} {
		_, err := client.TryLock(background, key)
		mustBe(t, err, fencelock.ErrUsage)
	}
	_, err := client.TryLock(background, "k", fencelock.Shared(), fencelock.Slots(2))
	mustBe(t, err, fencelock.ErrUsage)
	must(t, held.Release(background)) // the session has not ended
}

func TestManyGoroutinesWaitAndAllAreServed(t *testing.T) {
	client := serve(t, "file:"+directory(t)).connect(t)
	held := lock(t, client, "k")
	const waiters = 300
	errs := make(chan error, waiters)
	for range waiters {
		go func() {
			errs <- client.Do(background, "k", func(context.Context, *fencelock.Held) error { return nil })
		}()
	}
	must(t, held.Release(background))
	for i := range waiters {
		if err := <-errs; err != nil {
			t.Fatal(fmt.Sprint(i), err)
		}
	}
}
