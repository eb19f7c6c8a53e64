package drivers_test

import (
	"errors"
	"testing"
	"time"

	"lockstep/pkg/drivers"
)

// A call of OnClosed after Close would be treated as the end of the next link.
func TestNoticeEndsBeforeClose(t *testing.T) {
	entered, calls, finished := make(chan struct{}), 0, false
	n := drivers.NewNotice(func(error) {
		calls++
		close(entered)
		time.Sleep(10 * time.Millisecond)
		finished = true // the race detector reports this unless End returns after it
	})
	go n.Broke(errors.New("first"))
	<-entered
	if n.End() {
		t.Error("End says that the link was whole, which had broken")
	}
	if !finished {
		t.Error("End returned while OnClosed was running")
	}
	n.Broke(errors.New("second"))
	if calls != 1 {
		t.Errorf("OnClosed was called %d times, want once", calls)
	}
}

func TestNoticeAfterEnd(t *testing.T) {
	n := drivers.NewNotice(func(error) { t.Error("OnClosed was called after End") })
	if !n.End() {
		t.Error("End says that the link had broken, which nobody said")
	}
	n.Broke(errors.New("late"))
	drivers.NewNotice(nil).Broke(errors.New("nobody listens"))
}
