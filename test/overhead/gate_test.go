package overhead

import "sync/atomic"

// gate lets at most window messages be unconfirmed. One goroutine enters, another leaves; they share no lock.
type gate struct {
	entered int64 // of the one that enters
	left    atomic.Int64
	wanted  atomic.Int64 // of left, for which the one that enters waits; 0: it does not
	room    chan struct{}
}

func newGate() *gate { return &gate{room: make(chan struct{}, 1)} }

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
		case g.room <- struct{}{}:
		default:
		}
	}
}

// wait returns when so many have left.
func (g *gate) wait(left int64) {
	g.wanted.Store(left)
	for g.left.Load() < left {
		<-g.room
	}
	g.wanted.Store(0)
}
