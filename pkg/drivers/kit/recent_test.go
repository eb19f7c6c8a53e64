package kit

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A value is requested again when it is too old, after Clear, and after an error.
func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var values Recent[int]
		calls := 0
		get := func(key string, want int) {
			t.Helper()
			got, err := values.Get(key, func() (int, error) {
				calls++
				if calls == 3 {
					return 0, errors.New("no value")
				}
				return calls, nil
			})
			if got != want || (err != nil) != (want == 0) {
				t.Errorf("%s: %d, %v; want %d", key, got, err, want)
			}
		}
		get("a", 1)
		get("b", 2)
		time.Sleep(recentLife - time.Nanosecond)
		get("a", 1)
		time.Sleep(time.Nanosecond)
		get("a", 0)
		get("a", 4)
		values.Clear()
		get("a", 5)
	})
}
