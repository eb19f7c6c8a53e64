package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/bundle"
)

// The first lines name the altered files, and the exit code is 6.
func TestVerifyBeginsWithWhatWasAltered(t *testing.T) {
	var out bytes.Buffer
	err := printVerification(&out, "x.zip",
		bundle.Verification{Altered: []error{errors.New("snapshots.jsonl is altered")},
			Unknown: []string{"the digest of the matrix"}, Notes: []string{"made by another"}})
	var heads []string
	for line := range strings.Lines(out.String()) {
		head, _, _ := strings.Cut(line, ":")
		heads = append(heads, head)
	}
	if got, want := strings.Join(heads, ", "), "altered, note, cannot be recomputed, x.zip"; got != want {
		t.Errorf("it prints %s, want %s\n%s", got, want, &out)
	}
	var left exit
	if !errors.As(err, &left) || left.code != ExitAltered {
		t.Errorf("it ends with %v, want code %d", err, ExitAltered)
	}
}
