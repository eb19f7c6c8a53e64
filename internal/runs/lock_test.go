package runs

import (
	"errors"
	"testing"
)

func TestRunIsLockedByOneProcess(t *testing.T) {
	root := t.TempDir()
	first, err := Create(root, someRun("locked"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Lock(), first.Lock()); err != nil {
		t.Fatal(err)
	}
	second, err := Open(root, "latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Lock(); !errors.Is(err, ErrLocked) {
		t.Errorf("the second process locked it, too: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.Lock(); err != nil {
		t.Errorf("it is locked although the first process released it: %v", err)
	}
	_ = second.Close()
}
