package drivers

import "sync"

// Notice calls one OnClosed as its contract says: once, and not after Close was called. Publishers and consumers
// of drivers have one each. Its methods are safe for concurrent use.
type Notice struct {
	call func(error)

	mu   sync.Mutex // held during the call, so that End waits for it
	over bool
}

// NewNotice makes the notice of an OnClosed, which may be nil.
func NewNotice(onClosed func(error)) *Notice { return &Notice{call: onClosed} }

// Broke says that the link broke by itself. Only the first call before End does anything.
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

// End is what Close begins with: from then on nothing is called, and nothing is being called. It reports whether the
// link was still whole, as far as Broke was told, and End not called before.
func (n *Notice) End() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	whole := !n.over
	n.over = true
	return whole
}
