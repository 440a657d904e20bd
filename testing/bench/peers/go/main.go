// redsync [version]
//
// Go's redsync over go-redis, one goroutine for each task; ../README.md describes a worker.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Its 32 tries are too few for the span. The pause is the default: 50 to 250 ms.
const tries = 1 << 30

const sale = "flash-sale"

type job struct {
	URL      string `json:"url"`
	Workload string `json:"workload"`
	Key      string `json:"key"`
	Keys     int    `json:"keys"`
	Tasks    int    `json:"tasks"`
	Process  int    `json:"process"`
	WarmUpMs int    `json:"warm_up_ms"`
	SpanMs   int    `json:"span_ms"`
	TTLMs    int    `json:"ttl_ms"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "version" {
		fmt.Println(version())
		return
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "redsync:", err)
		os.Exit(1)
	}
}

func work() error {
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return err
	}
	var job job
	if err := json.Unmarshal(line, &job); err != nil {
		return err
	}
	options, err := redis.ParseURL(job.URL)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	if err := client.Ping(context.Background()).Err(); err != nil {
		return err
	}
	locks := redsync.New(goredis.NewPool(client))
	fmt.Println("ready")
	if _, err := input.ReadBytes('\n'); err != nil {
		return err
	}
	counted := time.Now().Add(time.Duration(job.WarmUpMs) * time.Millisecond)
	end := counted.Add(time.Duration(job.SpanMs) * time.Millisecond)
	tasks := make([]*task, job.Tasks)
	var running sync.WaitGroup
	for number := range tasks {
		tasks[number] = &task{job: job, number: number, client: client, locks: locks, waits: map[int64]int{}}
		running.Add(1)
		go func() {
			defer running.Done()
			tasks[number].run(counted, end)
		}()
	}
	if job.Workload == sale {
		// A started sale must be completed; it may also end early.
		join(&running, time.Until(end)+5*time.Second)
	} else {
		time.Sleep(time.Until(end))
	}
	return json.NewEncoder(os.Stdout).Encode(logOf(tasks))
}

func join(running *sync.WaitGroup, patience time.Duration) {
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
	}
}

func version() string {
	found := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			found[module.Path] = strings.TrimPrefix(module.Version, "v")
		}
	}
	return fmt.Sprintf("redsync %s, go-redis %s, Go %s", found["github.com/go-redsync/redsync/v4"],
		found["github.com/redis/go-redis/v9"], strings.TrimPrefix(runtime.Version(), "go"))
}

// key that a task asks for next.
func (t *task) key() string {
	switch t.job.Workload {
	case "uncontended":
		return fmt.Sprintf("%s:%d:%d", t.job.Key, t.job.Process, t.number)
	case "many-keys":
		return fmt.Sprintf("%s:%d", t.job.Key, rand.IntN(t.job.Keys))
	}
	return t.job.Key
}
