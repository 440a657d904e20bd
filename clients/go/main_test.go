//go:build linux

package fencelock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/clients/go"
)

var background = context.Background()

// soon is enough for what happens at once, on a busy machine.
const soon = 10 * time.Second

func TestMain(m *testing.M) {
	if role := os.Getenv("FENCELOCK_TEST_ROLE"); role != "" {
		os.Exit(roles[role](os.Args[1:]))
	}
	if _, err := exec.LookPath(program()); err != nil {
		fmt.Fprintln(os.Stderr, "FENCELOCK_PROGRAM names no program:", err)
		os.Exit(1)
	}
	// Children of ended children become children of this process.
	const setChildSubreaper = 36
	syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
	for _, name := range []string{"FENCELOCK_SOCKET", "FENCELOCK_URL"} {
		os.Unsetenv(name)
	}
	status := m.Run()
	for _, pid := range children() {
		fmt.Fprintln(os.Stderr, "a process is left:", pid, commandLine(pid))
		syscall.Kill(pid, syscall.SIGKILL)
		status = 1
	}
	os.Exit(status)
}

func program() string { return os.Getenv("FENCELOCK_PROGRAM") }

// children returns the children of this process that live, and reaps the others.
func children() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			var pid int
			fmt.Sscan(field, &pid)
			if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); !strings.Contains(string(stat), ") Z ") {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(string(text), "\x00", " ")
}

// servers returns the children of this process that serve over their standard input.
func servers() (pids []int) {
	for _, pid := range children() {
		if strings.Contains(commandLine(pid), "serve --stdio") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// directory is one with a path that is short enough for a socket.
func directory(t *testing.T) string {
	t.Helper()
	path, err := os.MkdirTemp("", "fl")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(path) })
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t *testing.T, err, kind error) *fencelock.Error {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("expected %v, got: %v", kind, err)
	}
	var details *fencelock.Error
	errors.As(err, &details)
	return details
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time: " + what)
		}
	}
}

// process starts a process that the test ends, also by a panic or by its timeout.
func process(t *testing.T, command *exec.Cmd) *exec.Cmd {
	t.Helper()
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, command.Start())
	t.Cleanup(func() {
		command.Process.Signal(syscall.SIGCONT)
		command.Process.Kill()
		command.Wait()
	})
	return command
}

// A server of many sessions.
type server struct {
	*exec.Cmd
	path     string
	sessions atomic.Int64
}

func serve(t *testing.T, url string, more ...string) *server {
	t.Helper()
	s := &server{path: filepath.Join(directory(t), "s")}
	s.run(t, url, more...)
	return s
}

func (s *server) run(t *testing.T, url string, more ...string) {
	t.Helper()
	s.Cmd = process(t, exec.Command(program(), append([]string{"serve", "--listen", "unix:" + s.path, "--url", url}, more...)...))
	eventually(t, "the server listens", func() bool { return accepts(s.path) })
}

func accepts(path string) bool {
	socket, err := net.Dial("unix", path)
	if err == nil {
		socket.Close()
	}
	return err == nil
}

// connect begins another session: each has its own spelling of the path.
func (s *server) connect(t *testing.T) *fencelock.Client {
	t.Helper()
	same := strings.Repeat("/.", int(s.sessions.Add(1)))
	return connect(t, filepath.Dir(s.path)+same+"/s")
}

func connect(t *testing.T, address string) *fencelock.Client {
	t.Helper()
	client, err := fencelock.Connect(background, address)
	must(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func lock(t *testing.T, client *fencelock.Client, key string, options ...fencelock.Option) *fencelock.Held {
	t.Helper()
	held, err := client.Lock(background, key, append([]fencelock.Option{fencelock.Wait(soon)}, options...)...)
	must(t, err)
	return held
}

// redis starts a server of Redis, and returns its URL and a function that sends it a command.
func redis(t *testing.T) (string, func(...string) string) {
	t.Helper()
	path := filepath.Join(directory(t), "redis")
	process(t, exec.Command("redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--loglevel", "warning"))
	eventually(t, "Redis listens", func() bool { return accepts(path) })
	return "redis+unix://" + path, func(words ...string) string {
		t.Helper()
		socket, err := net.Dial("unix", path)
		must(t, err)
		defer socket.Close()
		fmt.Fprintf(socket, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(socket, "$%d\r\n%s\r\n", len(word), word)
		}
		reply, err := bufio.NewReader(socket).ReadString('\n')
		must(t, err)
		return reply
	}
}

// onEach runs a test on each backend.
func onEach(t *testing.T, test func(*testing.T, *server)) {
	t.Helper()
	t.Run("file", func(t *testing.T) { t.Parallel(); test(t, serve(t, "file:"+directory(t))) })
	t.Run("redis", func(t *testing.T) { t.Parallel(); url, _ := redis(t); test(t, serve(t, url)) })
}

// What this program does as a child of a test.
var roles = map[string]func([]string) int{
	// Holds the key of its second argument, by a session with its first, until its standard input ends.
	"hold": func(arguments []string) int {
		client, err := fencelock.Connect(background, arguments[0])
		if err == nil {
			_, err = client.Lock(background, arguments[1])
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		if len(arguments) > 2 { // a child that lives longer
			sleep := exec.Command("sleep", "60")
			sleep.Start()
			fmt.Println("held", sleep.Process.Pid)
		} else {
			fmt.Println("held")
		}
		os.Stdin.Read(make([]byte, 1))
		return 3
	},
	// Counts in a file, under the lock.
	"count": func(arguments []string) int {
		signal.Ignore(syscall.SIGINT)
		for range 25 {
			client, err := fencelock.Connect(background, arguments[0])
			if err == nil {
				err = client.Do(background, "count", func(context.Context, *fencelock.Held) error { return count(arguments[1]) })
			}
			if err == nil {
				err = client.Close()
			}
			if err != nil {
				fmt.Println(err)
				return 1
			}
		}
		return 0
	},
}

// count adds one to the number in a file, and loses some if it is not alone.
func count(path string) error {
	var number int
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fmt.Sscan(string(text), &number)
	time.Sleep(time.Millisecond)
	return os.WriteFile(path, []byte(fmt.Sprint(number+1)), 0o600)
}

func role(name string, arguments ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	command := exec.Command(self, arguments...)
	command.Env = append(os.Environ(), "FENCELOCK_TEST_ROLE="+name)
	return command
}

// holder starts a process that holds a key, and returns what it says of it.
func holder(t *testing.T, arguments ...string) (*exec.Cmd, string) {
	t.Helper()
	command := role("hold", arguments...)
	input, err := command.StdinPipe()
	must(t, err)
	t.Cleanup(func() { input.Close() })
	output, err := command.StdoutPipe()
	must(t, err)
	process(t, command)
	line, _ := bufio.NewReader(output).ReadString('\n')
	if !strings.HasPrefix(line, "held") {
		t.Fatalf("not held: %s", line)
	}
	return command, line
}
