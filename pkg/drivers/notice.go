package drivers

import "sync"

// Notice calls OnClosed according to its contract: at most once, and not after Close was called. Each publisher and
// consumer of a driver has its own. Its methods are safe for concurrent use.
type Notice struct {
	call func(error)

	mu   sync.Mutex // held during the call, so that End waits for it
	over bool
}

// NewNotice returns the Notice of an OnClosed, which may be nil.
func NewNotice(onClosed func(error)) *Notice { return &Notice{call: onClosed} }

// Broke reports that the link broke. Calls after the first one, or after End, have no effect.
func (n *Notice) Broke(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return
	}
	n.over = true
	if n.call != nil {
		n.call(err)
	}
}

// End must be the first call in Close. After it returns, OnClosed is not running and is not called again. It returns
// true if neither Broke nor End was called before.
func (n *Notice) End() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	whole := !n.over
	n.over = true
	return whole
}
