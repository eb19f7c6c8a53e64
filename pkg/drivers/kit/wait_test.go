package kit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// Each attempt gets an equal share of the time that is left.
func TestInTurnSharesTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		var ends []time.Duration
		try := func(answers int) func(context.Context, int) (string, error) {
			return func(ctx context.Context, i int) (string, error) {
				if i == answers {
					return "answer", nil
				}
				<-ctx.Done()
				ends = append(ends, time.Since(began))
				return "none", errors.Join(ctx.Err(), errors.New("silent "+string(rune('a'+i))))
			}
		}
		if got, err := kit.InTurn(ctx, 3, try(1)); got != "answer" || err != nil || !slices.Equal(ends, []time.Duration{time.Second}) {
			t.Errorf("%q, %v after %v", got, err, ends)
		}
		got, err := kit.InTurn(ctx, 2, try(-1))
		if got != "" || !slices.Equal(ends[1:], []time.Duration{2 * time.Second, 3 * time.Second}) {
			t.Errorf("%q after %v", got, ends)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "silent a") ||
			!strings.Contains(err.Error(), "silent b") {
			t.Errorf("the error lacks an attempt: %v", err)
		}
		if _, err := kit.InTurn(ctx, 2, try(-1)); strings.Contains(err.Error(), "silent b") {
			t.Errorf("an attempt begins after the time has ended: %v", err)
		}
	})
}

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, asked, final, reason := time.Now(), 0, errors.New("final"), errors.New("reason")
		err := kit.Poll(t.Context(), time.Second, func() (bool, error) {
			asked++
			return asked == 3, final
		})
		if err != final || asked != 3 || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %d calls and %v", err, asked, time.Since(began))
		}
		for _, why := range []error{nil, reason} {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			err := kit.Poll(ctx, time.Second, func() (bool, error) { return false, why })
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || why != nil && !errors.Is(err, why) ||
				strings.Contains(err.Error(), "nil") {
				t.Errorf("with the reason %v: %v", why, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		before := reason
		err = kit.Poll(ctx, time.Second, func() (bool, error) { // the second request is cut off
			defer func() { before = nil }()
			if before == nil {
				<-ctx.Done()
				return false, ctx.Err()
			}
			return false, before
		})
		if !errors.Is(err, reason) {
			t.Errorf("the reason before is not in %v", err)
		}
	})
}

func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, highest, calls atomic.Int64
		err := kit.Each(20, func(i int) error {
			calls.Add(1)
			highest.Store(max(highest.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			if i%10 == 5 {
				return errors.New("fault " + string(rune('a'+i)))
			}
			return nil
		})
		if calls.Load() != 20 || highest.Load() != 8 || running.Load() != 0 {
			t.Errorf("%d calls, %d at once, %d left", calls.Load(), highest.Load(), running.Load())
		}
		if err == nil || err.Error() != "fault f\nfault p" {
			t.Errorf("the errors are %v", err)
		}
	})
	if err := kit.Each(0, nil); err != nil {
		t.Error(err)
	}
}
