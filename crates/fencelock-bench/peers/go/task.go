package main

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
)

// task takes and gives back locks until the end.
type task struct {
	job    job
	number int
	locks  *redsync.Redsync

	// What it has done so far; the log is made while it may still be in the midst of its last turn.
	mutex      sync.Mutex
	grants     int
	refused    int
	errors     int
	firstError string
	waits      map[int64]int
}

func (t *task) run(counted, end time.Time) {
	for time.Now().Before(end) {
		if err := t.turn(counted, end); err != nil {
			t.mutex.Lock()
			t.errors++
			if t.firstError == "" {
				t.firstError = err.Error()
			}
			t.mutex.Unlock()
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func (t *task) turn(counted, end time.Time) error {
	lock := t.locks.NewMutex(t.key(), redsync.WithExpiry(time.Duration(t.job.TTLMs)*time.Millisecond),
		redsync.WithTries(tries))
	asked := time.Now()
	for {
		err := lock.Lock()
		if err == nil {
			break
		}
		if !errors.Is(err, redsync.ErrFailed) {
			return err
		}
		if !time.Now().Before(end) {
			return nil
		}
		t.mutex.Lock()
		t.refused++
		t.mutex.Unlock()
	}
	granted := time.Now()
	if !asked.Before(counted) && !granted.After(end) {
		if t.job.File != "" {
			if err := countUp(t.job.File); err != nil {
				return err
			}
		}
		t.mutex.Lock()
		t.waits[rounded(granted.Sub(asked).Microseconds())]++
		t.grants++
		t.mutex.Unlock()
	}
	_, err := lock.Unlock()
	return err
}

// countUp reads a number, takes its time, writes the next one: only a lock keeps others from doing so meanwhile.
func countUp(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	// Empty while another writes, which a lock keeps from doing so.
	seen, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	time.Sleep(500 * time.Microsecond)
	return os.WriteFile(file, []byte(strconv.Itoa(seen+1)), 0o600)
}

// rounded to three digits.
func rounded(micros int64) int64 {
	unit := int64(1)
	for digits := len(strconv.FormatInt(micros, 10)); digits > 3; digits-- {
		unit *= 10
	}
	return (micros + unit/2) / unit * unit
}

type share struct {
	Grants  int `json:"grants"`
	Refused int `json:"refused"`
}

type report struct {
	Tasks      []share    `json:"tasks"`
	Waits      [][2]int64 `json:"waits"`
	Errors     int        `json:"errors"`
	FirstError *string    `json:"first_error"`
}

func logOf(tasks []*task) report {
	out := report{Tasks: []share{}, Waits: [][2]int64{}}
	all := map[int64]int{}
	for _, t := range tasks {
		t.mutex.Lock()
		out.Tasks = append(out.Tasks, share{t.grants, t.refused})
		for wait, count := range t.waits {
			all[wait] += count
		}
		out.Errors += t.errors
		if out.FirstError == nil && t.firstError != "" {
			first := t.firstError
			out.FirstError = &first
		}
		t.mutex.Unlock()
	}
	for wait, count := range all {
		out.Waits = append(out.Waits, [2]int64{wait, int64(count)})
	}
	slices.SortFunc(out.Waits, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	return out
}
