package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"example.org/lockstep/lockstep/internal/plan"
)

// A program that is killed while it creates the store leaves an empty or incomplete file.
func TestIncompleteStoreIsFilled(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"no buckets": func(path string) error {
			db, err := bbolt.Open(path, 0o600, nil)
			return errors.Join(err, db.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			scheduledRun(t, root, 0, 1, 1, unchanged)
			s := Of(root)
			if err := damage(s.path); err != nil {
				t.Fatal(err)
			}
			if a := mustAnswer(t, s, plan.HistoryQuery{}); a.Runs != 0 {
				t.Errorf("before it is filled: got %d runs, want 0", a.Runs)
			}
			refresh(t, s)
			if a := mustAnswer(t, s, plan.HistoryQuery{}); a.Runs != 1 {
				t.Errorf("after it is filled: got %d runs, want 1", a.Runs)
			}
		})
	}
}

// A truncated copy lacks pages at its end. Reading a missing page must not end the program.
func TestTruncatedStore(t *testing.T) {
	root := t.TempDir()
	s := newSyntheticStore(t, root, 20, 30)
	scheduledRun(t, root, 3, 1, 1, unchanged)
	whole, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	for at := len(whole) / 4096 * 4096; at > 0; at -= max(4096, len(whole)/6/4096*4096) {
		if err := os.WriteFile(s.path, whole[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		_, answerErr := s.Answer(plan.HistoryQuery{Value: "publish.rate"})
		addErr := s.Add(context.Background(), "run-0003")
		for what, err := range map[string]error{"Answer": answerErr, "Add": addErr} {
			if err != nil && !errors.Is(err, ErrDamaged) {
				t.Errorf("store truncated to %d bytes, %s: got error %v, want nil or ErrDamaged", at, what, err)
			}
		}
	}
	if _, err := s.Reindex(context.Background(), true); err != nil {
		t.Error(err)
	}
}

// A key without the start of its run is reported as damage.
func TestAShortKeyIsDamage(t *testing.T) {
	root := t.TempDir()
	scheduledRun(t, root, 0, 1, 1, unchanged)
	s := Of(root)
	refresh(t, s)
	a := mustAnswer(t, s, plan.HistoryQuery{Value: "publish.rate"})
	if err := s.update(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketPoints).Put(append([]byte(a.Cells[0].ID), 0, 1), []byte("{}"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.view(func(tx *bbolt.Tx) error {
		_, err := (&reader{tx: tx, places: map[string][]int{}}).read(a.Cells[0].ID, span{})
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("got error %v, want %v", err, ErrDamaged)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestKnownNames(t *testing.T) {
	for name, want := range map[string]bool{"": true, "publish.rate": true, "a/publish.rate": true,
		"a/b/publish.rate": false, "publish.rat": false} {
		if err := Known(name); (err == nil) != want {
			t.Errorf("Known(%q): got error %v, want known %v", name, err, want)
		}
	}
}

// The later series is the newest if several series end at the same time.
func TestNewestOfSeriesWithTheSameEnd(t *testing.T) {
	at := func(environment string, second int) plan.HistoryPoint {
		return plan.HistoryPoint{Run: fmt.Sprint(second), At: time.Unix(int64(second), 0), Environment: environment}
	}
	points := []plan.HistoryPoint{at("a", 1), at("c", 2), at("b", 3), at("a", 3)}
	answer := plan.HistoryAnswer{Cells: []plan.HistoryCell{{ID: "x", Points: points}}}
	for _, s := range NewTrends("", Answer{"publish.rate", answer}).Series {
		if s.Newest != (s.hosts == "b") {
			t.Errorf("series of %s: newest: got %v, want %v", s.hosts, s.Newest, s.hosts == "b")
		}
	}
}
