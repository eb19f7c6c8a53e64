package history

import (
	"context"
	"errors"
	"os"
	"testing"

	"go.etcd.io/bbolt"

	"example.org/lockstep/lockstep/internal/plan"
)

// A program that is killed while it creates the store leaves an empty or incomplete file.
func TestAStoreThatWasNotFinishedIsFilled(t *testing.T) {
	for name, leave := range map[string]func(path string) error{
		"empty file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"no buckets": func(path string) error {
			db, err := bbolt.Open(path, 0o600, nil)
			return errors.Join(err, db.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			scheduledRun(t, root, 0, 1, 1, nothing)
			s := Of(root)
			if err := leave(s.path); err != nil {
				t.Fatal(err)
			}
			if a := ask(t, s, plan.HistoryQuery{}); a.Runs != 0 {
				t.Errorf("it has %d runs", a.Runs)
			}
			fresh(t, s)
			if a := ask(t, s, plan.HistoryQuery{}); a.Runs != 1 {
				t.Errorf("filled, it has %d runs", a.Runs)
			}
		})
	}
}

// A truncated copy lacks pages at its end. Reading a missing page must not end the program.
func TestACutStoreSaysSo(t *testing.T) {
	root := t.TempDir()
	s := synthetic(t, root, 20, 30)
	scheduledRun(t, root, 3, 1, 1, nothing)
	whole, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	for at := len(whole) / 4096 * 4096; at > 0; at -= max(4096, len(whole)/6/4096*4096) {
		if err := os.WriteFile(s.path, whole[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		_, asked := s.Answer(plan.HistoryQuery{Value: "publish.rate"})
		added := s.Add(context.Background(), "night-0003")
		for what, err := range map[string]error{"asked": asked, "added": added} {
			if err != nil && !errors.Is(err, ErrDamaged) {
				t.Errorf("cut at %d, %s: %v", at, what, err)
			}
		}
	}
	if _, err := s.Reindex(context.Background(), true); err != nil {
		t.Error(err)
	}
}
