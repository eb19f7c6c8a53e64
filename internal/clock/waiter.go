package clock

import "context"

// Waiter waits like Until without allocating after its first wait. The zero value is ready. It serves one
// goroutine at a time and holds nothing between waits: it can simply be dropped. One that was used outside of a
// synctest bubble is of no use inside, and the other way round.
type Waiter struct {
	alarm Alarm
}

// Until is the function Until of this package.
func (w *Waiter) Until(ctx context.Context, at int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if Now() >= at {
		return nil
	}
	if w.alarm.c == nil {
		w.alarm.c = make(chan struct{}, 1)
	}
	w.alarm.Set(at)
	select {
	case <-w.alarm.c:
		return nil
	case <-ctx.Done():
		w.alarm.Stop()
		select { // a token that was sent meanwhile must not end the next wait
		case <-w.alarm.c:
		default:
		}
		return ctx.Err()
	}
}
