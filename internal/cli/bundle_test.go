package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"lockstep/internal/bundle"
)

// What was altered is the first line, and what only follows from it is one.
func TestVerifyBeginsWithWhatWasAltered(t *testing.T) {
	var out bytes.Buffer
	err := printVerdict(&out, "x.zip", bundle.Verdict{Altered: []error{errors.New("snapshots.jsonl is altered")}, Follows: []string{"send.rate: stored 1", "p99: stored 2"},
		Unknown: []string{"the digest of the matrix"}, Notes: []string{"made by another"}})
	var heads []string
	for line := range strings.Lines(out.String()) {
		head, _, _ := strings.Cut(line, ":")
		heads = append(heads, head)
	}
	if got, want := strings.Join(heads, ", "), "altered, follows, note, cannot be recomputed, x.zip"; err == nil || got != want {
		t.Errorf("%v: %s, want %s\n%s", err, got, want, &out)
	}
	if !strings.Contains(out.String(), "2 consequences of what was altered; the first: send.rate") {
		t.Errorf("it says\n%s", &out)
	}
}
