package agent

import (
	"errors"
	"fmt"
	"sync"

	"example.org/lockstep/lockstep/internal/wire"
)

const (
	maxAttempts = 256 // kept: many more than a controller uses at a time
	maxReleases = 16  // of one attempt: one per step
)

// attempts stores the last attempts of this slot with their releases. Commands may come more than once, and releases
// may come before the attempt has begun. Safe for concurrent use.
type attempts struct {
	mu    sync.Mutex
	known map[wire.Ref]*inbox
	order []wire.Ref
}

// inbox has the releases of one attempt, each once.
type inbox struct {
	releases chan wire.Release
	taken    map[string]bool
}

// add returns the inbox of a new attempt; nil if the attempt is known.
func (a *attempts) add(ref wire.Ref) *inbox {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known[ref] != nil {
		return nil
	}
	if a.known == nil {
		a.known = map[wire.Ref]*inbox{}
	}
	in := &inbox{releases: make(chan wire.Release, maxReleases), taken: map[string]bool{}}
	a.known[ref], a.order = in, append(a.order, ref)
	if len(a.order) > maxAttempts {
		delete(a.known, a.order[0])
		a.order = a.order[1:]
	}
	return in
}

// release puts a release into the inbox of its attempt.
func (a *attempts) release(ref wire.Ref, r wire.Release) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	in := a.known[ref]
	if in == nil {
		return fmt.Errorf("release attempt %s: it was not assigned to this process", ref)
	}
	step := string(r.Step)
	if r.Step == wire.StepTeardown { // several agents do it, one after the other
		step += " " + r.Agent
	}
	if in.taken[step] {
		return nil
	}
	select {
	case in.releases <- r:
		in.taken[step] = true
		return nil
	default:
		return errors.New("release attempt: more releases than there are steps")
	}
}
