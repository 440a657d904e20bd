//go:build linux

package fencelock_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/clients/go"
)

func TestASocketIsFoundByArgumentOrByFENCELOCK_SOCKET(t *testing.T) {
	s := serve(t, "file:"+directory(t))
	for i, name := range []string{"unix:" + s.path, s.path} {
		t.Setenv("FENCELOCK_SOCKET", "")
		lock(t, connect(t, name), fmt.Sprint("argument", i))
		t.Setenv("FENCELOCK_SOCKET", name)
		client := connect(t, "")
		held := lock(t, client, fmt.Sprint("variable", i))
		if _, err := s.connect(t).TryLock(background, held.Key()); err == nil {
			t.Fatal("another server")
		}
	}
	if started := servers(); len(started) != 0 {
		t.Fatal("a child was started", started)
	}
}

func TestAChildIsStartedOnceForAProcessAndEndsWithTheLastClient(t *testing.T) {
	url, _ := redis(t)
	t.Setenv("FENCELOCK_URL", url)
	a, b := connect(t, ""), connect(t, "")
	held := lock(t, a, "k")
	if started := servers(); len(started) != 1 {
		t.Fatal(started)
	}
	_, err := b.TryLock(background, "k")
	mustBe(t, err, fencelock.ErrBusy)
	must(t, b.Close())
	_, err = held.Remaining(background)
	must(t, err)
	must(t, a.Close())
	if left := servers(); len(left) != 0 {
		t.Fatal("left:", left)
	}
	mustBe(t, context.Cause(held.Context()), fencelock.ErrLost)
	_, err = a.TryLock(background, "k")
	mustBe(t, err, fencelock.ErrClosed)
	lock(t, connect(t, ""), "k") // released in order, not by the end of its lease
}

func TestASignalOfTheTerminalDoesNotEndAChildAndItsURLIsNoArgument(t *testing.T) {
	client := connect(t, "file:"+directory(t))
	for _, pid := range servers() {
		must(t, syscall.Kill(pid, syscall.SIGINT))
		must(t, syscall.Kill(pid, syscall.SIGHUP))
		if line := commandLine(pid); strings.Contains(line, "file:") {
			t.Fatal(line)
		}
		lock(t, client, "k") // refused if it were being stopped
		return
	}
	t.Fatal("no child")
}

func TestProgramsThatThisOneStartsInheritNoDescriptor(t *testing.T) {
	inherited := func() []string {
		listing, err := exec.Command("ls", "-l", "/proc/self/fd").Output()
		must(t, err)
		return regexp.MustCompile(`(?m) ([3-9]|\d\d+) -> (pipe|socket).*$`).FindAllString(string(listing), -1)
	}
	before := inherited() // from what has started the test
	s := serve(t, "file:"+directory(t))
	lock(t, s.connect(t), "a")
	lock(t, connect(t, "file:"+directory(t)), "b")
	if after := inherited(); !slices.Equal(before, after) {
		t.Fatal(before, after)
	}
}

func TestTheLocksOfAKilledProcessAreFreeEvenIfItsChildLives(t *testing.T) {
	s := serve(t, "file:"+directory(t))
	for _, address := range []string{s.path, "file:" + directory(t)} {
		command, line := holder(t, address, "k", "with a child")
		var child int
		fmt.Sscanf(line, "held %d", &child)
		defer syscall.Kill(child, syscall.SIGKILL)
		other := connect(t, address)
		_, err := other.TryLock(background, "k")
		mustBe(t, err, fencelock.ErrBusy)
		command.Process.Kill()
		lock(t, other, "k")
		if syscall.Kill(child, 0) != nil {
			t.Fatal("its child does not live")
		}
	}
}

func TestAnExitInTheMiddleFreesTheLock(t *testing.T) {
	s := serve(t, "file:"+directory(t))
	for _, address := range []string{s.path, "file:" + directory(t)} {
		command := role("hold", address, "k") // its input is at its end, so it exits at once
		output, err := command.Output()
		if command.ProcessState.ExitCode() != 3 || strings.TrimSpace(string(output)) != "held" {
			t.Fatalf("%v: %s", err, output)
		}
		lock(t, connect(t, address), "k")
	}
}

func TestAnEmptyNameOfASocketIsNoChildWithOtherLocks(t *testing.T) {
	for _, empty := range []string{"", "unix:"} {
		t.Setenv("FENCELOCK_SOCKET", empty)
		_, err := fencelock.Connect(background, "")
		if mistake := mustBe(t, err, fencelock.ErrUsage); !strings.Contains(mistake.Error(), "unset FENCELOCK_SOCKET") {
			t.Fatal(mistake)
		}
	}
	_, err := fencelock.Connect(background, "unix:")
	mustBe(t, err, fencelock.ErrUsage)
}

func TestMistakesSayWhatToDo(t *testing.T) {
	dir := directory(t)
	notAProgram, old := filepath.Join(dir, "not-a-program"), filepath.Join(dir, "old")
	must(t, os.WriteFile(notAProgram, nil, 0o600))
	must(t, os.WriteFile(old, []byte("#!/bin/sh\necho unrecognized subcommand >&2\nexit 64\n"), 0o700))
	for _, mistake := range []struct {
		name, program, address string
		kind                   error
		says                   []string
	}{
		{"no program", "/nowhere/fencelock", "", fencelock.ErrUsage, []string{"/nowhere/fencelock", "FENCELOCK_PROGRAM", "FENCELOCK_SOCKET"}},
		{"no such name", "fencelock-of-nobody", "", fencelock.ErrUsage, []string{"fencelock-of-nobody", "PATH", "install"}},
		{"not executable", notAProgram, "", fencelock.ErrUsage, []string{notAProgram, "FENCELOCK_PROGRAM"}},
		{"another program", "true", "", fencelock.ErrUnreachable, []string{"true", "fencelock serve --help"}},
		{"an old program", old, "", fencelock.ErrUsage, []string{"unrecognized subcommand", "exit status 64"}},
		{"a URL of nothing", program(), "bogus://x", fencelock.ErrUsage, []string{"bogus", "redis://"}},
		{"no socket", program(), "unix:" + dir + "/nowhere", fencelock.ErrUnreachable, []string{dir + "/nowhere", "fencelock serve --listen", "FENCELOCK_SOCKET"}},
		{"a file", program(), notAProgram, fencelock.ErrUnreachable, []string{notAProgram, "fencelock serve --listen"}},
	} {
		t.Run(mistake.name, func(t *testing.T) {
			t.Setenv("FENCELOCK_PROGRAM", mistake.program)
			ctx, stop := context.WithTimeout(background, soon)
			defer stop()
			_, err := fencelock.Connect(ctx, mistake.address)
			mustBe(t, err, mistake.kind)
			for _, word := range mistake.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("no %q in: %v", word, err)
				}
			}
			t.Log(err)
		})
	}
}

func TestASocketWithoutRightsSaysWhatAdmits(t *testing.T) {
	s := serve(t, "file:"+directory(t))
	must(t, os.Chmod(s.path, 0))
	runtime.LockOSThread() // it ends with the test
	syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0)
	_, err := fencelock.Connect(background, s.path)
	if denied := mustBe(t, err, fencelock.ErrUnreachable); !strings.Contains(denied.Advice, "--group GROUP") {
		t.Fatal(denied)
	}
}

func TestAServerWithTooManySessionsSaysSo(t *testing.T) {
	s := serve(t, "file:"+directory(t), "--connections", "1")
	eventually(t, "there is a session", func() bool {
		client, err := fencelock.Connect(background, filepath.Dir(s.path)+"/./s")
		if err == nil {
			t.Cleanup(func() { client.Close() })
		}
		return err == nil
	})
	for range 20 {
		_, err := fencelock.Connect(background, s.path)
		if limit := mustBe(t, err, fencelock.ErrLimit); !strings.Contains(limit.Message, "connections") {
			t.Fatal(limit)
		}
	}
}

func TestTheContextLimitsTheConnection(t *testing.T) {
	s := serve(t, "file:"+directory(t))
	s.Process.Signal(syscall.SIGSTOP)
	ctx, stop := context.WithTimeout(background, 100*time.Millisecond)
	defer stop()
	_, err := fencelock.Connect(ctx, s.path)
	mustBe(t, err, context.DeadlineExceeded)
}

func TestANilContextIsTheBackground(t *testing.T) {
	var none context.Context
	s := serve(t, "file:"+directory(t))
	client, err := fencelock.Connect(none, s.path)
	must(t, err)
	defer client.Close()
	held, err := client.Lock(none, "k")
	must(t, err)
	_, err = held.Remaining(none)
	must(t, err)
	must(t, held.Release(none))
	_, err = held.Remaining(none)
	mustBe(t, err, fencelock.ErrUsage)
	must(t, client.Do(none, "k", func(ctx context.Context, _ *fencelock.Held) error { return ctx.Err() }))
}

func TestAFrozenChildIsKilledWhenItsClientIsClosed(t *testing.T) {
	client := connect(t, "file:"+directory(t))
	held := lock(t, client, "k")
	for _, pid := range servers() {
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	must(t, client.Close())
	if left := servers(); len(left) != 0 {
		t.Fatal("left:", left)
	}
	mustBe(t, context.Cause(held.Context()), fencelock.ErrLost)
}
