package wire

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// TestBaselinesThatCannotBeUsed proves that a damaged baseline is listed by name, one of another format cannot be read,
// one that exceeds a message is rejected, and that the others remain usable.
func TestBaselinesThatCannotBeUsed(t *testing.T) {
	c := storeOf(t, plane(t, ServerConfig{}))
	l := campaign(t, c, "test")
	b := plan.BaselineRecord{Baseline: plan.Baseline{Name: "good", Run: "r1", Matrix: "m"},
		Plan:     plan.Run{Version: plan.RecordFormat, ID: "r1", Name: "m"},
		Outcomes: []plan.Outcome{{Task: "t1", Values: map[string]plan.Value{"lost": {}}}}}
	if err := l.PutBaseline(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	kv, err := c.js.KeyValue(t.Context(), subject.BaselinesBucket)
	if err == nil {
		_, err = kv.Put(t.Context(), subject.EncodeToken("a b"), []byte("damaged"))
	}
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, MaxMessage+MaxMessage/16) // cannot be compressed below its size
	_, _ = rand.Read(noise)                         // never fails
	large := b
	large.Baseline.Name, large.Outcomes = "large", []plan.Outcome{{Task: base64.StdEncoding.EncodeToString(noise)}}
	if err := l.PutBaseline(t.Context(), large); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large baseline: %v", err)
	}
	if all, err := c.baselines(t.Context()); err != nil || len(all) != 2 || all[0] != (plan.Baseline{Name: "a b"}) ||
		all[1] != b.Baseline {
		t.Errorf("the list is %+v, %v", all, err)
	}
	old := b
	old.Baseline.Name, old.Plan.Version = "old", plan.RecordFormat-1
	if err := l.PutBaseline(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"good": nil, "old": ErrUnreadable, "a b": ErrUnreadable,
		"large": ErrNoBaseline} {
		got, err := c.Baseline(t.Context(), name)
		if !errors.Is(err, want) || want == nil && (got.Plan.ID != "r1" || len(got.Outcomes) != 1) {
			t.Errorf("baseline %q: %+v, %v; want %v", name, got, err, want)
		}
	}
	if err := c.removeBaseline(t.Context(), "a b"); err != nil {
		t.Errorf("remove a damaged one: %v", err)
	}
}
