package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
)

// task acquires and releases locks until the end.
type task struct {
	job    job
	number int
	client *redis.Client
	locks  *redsync.Redsync

	soldOut bool

	// The results so far; the log may be created during the last iteration.
	mutex      sync.Mutex
	grants     int
	refused    int
	errors     int
	firstError string
	waits      map[int64]int
}

func (t *task) run(counted, end time.Time) {
	for time.Now().Before(end) && !t.soldOut {
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
	key := t.key()
	lock := t.locks.NewMutex(key, redsync.WithExpiry(time.Duration(t.job.TTLMs)*time.Millisecond),
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
	if t.job.Workload == sale && !granted.After(end) {
		if err := t.sell(key); err != nil {
			return err
		}
	}
	if !asked.Before(counted) && !granted.After(end) {
		t.mutex.Lock()
		t.waits[rounded(granted.Sub(asked).Microseconds())]++
		t.grants++
		t.mutex.Unlock()
	}
	_, err := lock.Unlock()
	return err
}

// sell sells one item, if one is left. Only the lock prevents other sales between reading and writing.
func (t *task) sell(key string) error {
	stock, err := t.client.Get(context.Background(), key+":stock").Int()
	if err != nil {
		return err
	}
	t.soldOut = stock <= 0
	if t.soldOut {
		return nil
	}
	if err := t.client.Set(context.Background(), key+":stock", stock-1, 0).Err(); err != nil {
		return err
	}
	return t.client.RPush(context.Background(), key+":sold", stock).Err()
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
