package agent

import "lockstep/internal/wire"

// mostTries is how many tries are remembered: many more than a controller has in hand.
const mostTries = 256

// tries are those that this process was assigned last, so that an assignment that comes twice is not taken for another one.
type tries struct {
	known map[wire.Ref]bool
	order []wire.Ref
}

// add tells whether a try is new.
func (t *tries) add(ref wire.Ref) bool {
	if t.known[ref] {
		return false
	}
	if t.known == nil {
		t.known = map[wire.Ref]bool{}
	}
	t.known[ref], t.order = true, append(t.order, ref)
	if len(t.order) > mostTries {
		delete(t.known, t.order[0])
		t.order = t.order[1:]
	}
	return true
}
