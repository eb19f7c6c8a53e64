package agent

import (
	"strings"
	"testing"
	"time"
)

func TestASlotWithoutHeartbeatsIsStuck(t *testing.T) {
	one := &slot{cfg: Config{Name: "a1"}}
	s := &Status{slots: []*slot{one}}
	now, past := time.Now(), time.Now().Add(-2*maxStall)
	for _, x := range []struct {
		reported *time.Time
		stuck    bool
	}{{nil, false}, {&now, false}, {&past, true}} {
		one.reported.Store(x.reported)
		if err := s.Stuck(); (err != nil) != x.stuck || err != nil && !strings.Contains(err.Error(), "a1") {
			t.Errorf("last heartbeat at %v: got %v, want stuck %v", x.reported, err, x.stuck)
		}
	}
}
