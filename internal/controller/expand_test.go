package controller

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/internal/plan"
)

// A matrix that takes for ever costs its schedule a slot, and no other schedule more than a wait: the keeper goes on, and so does the leader.
func TestEndlessMatrixHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := expanding
		defer func() { expanding = own }()
		expanding = make(chan struct{}, 2)
		never := make(chan struct{})
		endless := func(context.Context) (plan.Run, error) { <-never; return plan.Run{}, nil }
		quick := func(context.Context) (plan.Run, error) { return plan.Run{ID: "r"}, nil }
		for range 2 {
			began := time.Now()
			if _, err := expandWithin(t.Context(), time.Minute, endless); err == nil || !strings.Contains(err.Error(), "longer than 1m0s") || time.Since(began) != time.Minute {
				t.Errorf("ended after %v with %v: want a minute, and to read so", time.Since(began), err)
			}
			run, err := expandWithin(t.Context(), time.Minute, quick)
			if full := len(expanding) == cap(expanding); full != (err != nil) || !full && run.ID != "r" {
				t.Errorf("beside %d endless ones: %+v, %v", len(expanding), run, err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		began := time.Now()
		if _, err := expandWithin(ctx, time.Minute, quick); err == nil || time.Since(began) != time.Second {
			t.Errorf("a controller that ends waited %v: %v", time.Since(began), err)
		}
		close(never)
		synctest.Wait()
		if len(expanding) != 0 {
			t.Errorf("%d places are taken after the end", len(expanding))
		}
		if _, err := expandWithin(t.Context(), time.Minute, quick); err != nil {
			t.Errorf("with free places: %v", err)
		}
	})
}
