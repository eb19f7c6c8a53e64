package wire

import (
	"errors"
	"testing"
)

// A run that is submitted again is not counted twice.
func TestARunIsAdmittedOnce(t *testing.T) {
	l := &Leader{}
	for range 2 {
		if err := l.admit("r", maxQueuedBytes/2+1, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.admit("other", maxQueuedBytes/2, true); !errors.Is(err, ErrFull) {
		t.Errorf("two runs that use more than the maximum: %v", err)
	}
}
