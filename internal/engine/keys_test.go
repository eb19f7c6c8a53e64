package engine

import (
	"context"
	"math"
	"sync"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Keys follow Zipf's law for any exponent: the first ones within five standard deviations.
func TestKeysFollowZipf(t *testing.T) {
	for _, skew := range []float64{0, 0.5, 1, 1.5, 10} {
		const n, keys = 300_000, 50
		p := newFillingPublisher(t, plan.Message{Size: 100, Keys: plan.Keys{Count: keys, Skew: skew}})
		var count [keys]int
		for range n {
			count[p.e.keys.key(p.sequence, &p.keyDraws)]++
		}
		sum := 0.0
		for k := range keys {
			sum += math.Pow(float64(k+1), -skew)
		}
		for k := range keys {
			checkShare(t, "key", count[k], n, math.Pow(float64(k+1), -skew)/sum)
		}
	}
}

// keyCounter receives every published message.
type keyCounter struct {
	mu   sync.Mutex
	keys map[uint32]int
}

type keyCountingPublisher struct {
	drivers.Publisher
	t *keyCounter
}

func (t *keyCounter) publish(ctx context.Context, conn drivers.Conn, spec drivers.PublisherSpec) (drivers.Publisher,
	error) {
	p, err := conn.Publisher(ctx, spec)
	return keyCountingPublisher{p, t}, err
}

func (p keyCountingPublisher) Publish(ctx context.Context, m drivers.Message) error {
	p.t.mu.Lock()
	p.t.keys[m.Key]++
	p.t.mu.Unlock()
	return p.Publisher.Publish(ctx, m)
}

// Drivers receive the keys, which differ from those of bindings that churn creates.
func TestMessagesCarryKeys(t *testing.T) {
	for count, want := range map[int]int{0: 1000, 3: 3} {
		tap := &keyCounter{keys: map[uint32]int{}}
		s := newTestTask(t, func(w *plan.Workload) {
			w.Publishers.Count, w.Warmup, w.Message.Keys = 1000, 0, plan.Keys{Count: count, Skew: 1}
		})
		s.wrapSession = func(session drivers.Session) drivers.Session { return withPublishers(session, tap.publish) }
		s.run(t.Context())
		if len(tap.keys) != want {
			t.Errorf("count %d: got %d different keys, want %d", count, len(tap.keys), want)
		}
		for k := range tap.keys {
			if k >= drivers.ChurnKey {
				t.Errorf("got key %d, want a key below %d: higher ones are for bindings that churn creates", k,
					drivers.ChurnKey)
			}
		}
		if count == 3 && (tap.keys[0] < tap.keys[1] || tap.keys[1] < tap.keys[2]) {
			t.Errorf("got messages per key %v, want the first keys most often", tap.keys)
		}
	}
}

// An index of weight 0 is never drawn, and the others are drawn for every random number.
func TestWeightZeroIsNeverDrawn(t *testing.T) {
	const column = 1 << 31 // step between the two columns, in the upper half
	a := newAlias([]float64{0, 1})
	for _, x := range []uint64{0, math.MaxUint32, column << 32, column<<32 | math.MaxUint32} {
		if got := a.index(x); got != 1 {
			t.Errorf("random number %#x: got index %d, which has weight 0", x, got)
		}
	}
}
