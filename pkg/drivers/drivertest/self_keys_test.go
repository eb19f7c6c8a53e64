package drivertest

import (
	"context"
	"sync"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// partitioned is loopback with three partitions, which are only numbers. place selects the partition of a message, of
// which n were published before. Nil: the key modulo 3, and without keys one after the other.
func partitioned(place func(keyed bool, key uint32, n int) int) faulty {
	if place == nil {
		place = func(keyed bool, key uint32, n int) int {
			if keyed {
				return int(key)
			}
			return n
		}
	}
	var mu sync.Mutex
	at := map[id]uint32{}
	return faulty{
		declare: func(d *drivers.Declaration) { d.Capabilities.Keys, d.Capabilities.Streams = true, true },
		publisher: func(p drivers.Publisher, spec drivers.PublisherSpec) drivers.Publisher {
			n := 0
			return &publishing{Publisher: p, publish: func(ctx context.Context, m drivers.Message) error {
				which, _ := read(m.Body)
				mu.Lock()
				at[which] = uint32(place(spec.Keyed, m.Key, n) % 3)
				mu.Unlock()
				n++
				return p.Publish(ctx, m)
			}}
		},
		handler: func(h drivers.Handler) drivers.Handler {
			return func(ds []drivers.Delivery) {
				for i := range ds {
					which, _ := read(ds[i].Body)
					mu.Lock()
					ds[i].Stream = at[which]
					mu.Unlock()
				}
				h(ds)
			}
		},
	}
}

func TestKeys(t *testing.T) {
	swaps := partitioned(nil)
	swaps.open = option(`"swap":[4]`).open // messages 4 and 5 have the same key
	for name, x := range map[string]struct {
		driver faulty
		passes bool
	}{
		"select a partition": {partitioned(nil), true},
		"have no effect":     {partitioned(func(_ bool, _ uint32, n int) int { return n }), false},
		"have no effect, and all messages are in one partition": {partitioned(func(keyed bool, _ uint32, n int) int {
			if keyed {
				return 0
			}
			return n
		}), false},
		"have an effect without Keyed": {partitioned(func(_ bool, key uint32, _ int) int { return int(key) }), false},
		"do not keep the order":        {swaps, false},
	} {
		if r := runOne(t, x.driver, "keys"); (len(r.failures) == 0) != x.passes || r.inapplicable != "" {
			t.Errorf("keys that %s: %v %s", name, r.failures, r.inapplicable)
		}
	}
	if r := runOne(t, faulty{}, "keys"); r.inapplicable == "" {
		t.Error("the check applies to a driver without keys")
	}
}
