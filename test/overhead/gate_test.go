package overhead

import "sync/atomic"

// gate limits the number of unconfirmed messages to window. One goroutine enters, another leaves. They share no lock.
type gate struct {
	entered int64 // used only by the goroutine that enters
	left    atomic.Int64
	wanted  atomic.Int64 // value of left for which the entering goroutine waits; 0: it does not wait
	wake    chan struct{}
}

func newGate() *gate { return &gate{wake: make(chan struct{}, 1)} }

func (g *gate) enter() {
	if g.entered-g.left.Load() >= window {
		g.wait(g.entered - window + 1)
	}
	g.entered++
}

func (g *gate) leave() {
	n := g.left.Add(1)
	if w := g.wanted.Load(); w != 0 && n >= w {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
}

// wait returns when left has this value.
func (g *gate) wait(left int64) {
	g.wanted.Store(left)
	for g.left.Load() < left {
		<-g.wake
	}
	g.wanted.Store(0)
}
