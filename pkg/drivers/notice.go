package drivers

// Notice calls OnClosed according to its contract: at most once, and not after Close was called. Each publisher and
// consumer of a driver has its own. Its methods are safe for concurrent use.
type Notice struct {
	call func(error)

	turn chan struct{} // a token while OnClosed runs: a mutex would stop the virtual time of tests
	over bool
}

// NewNotice returns the Notice of an OnClosed, which may be nil.
func NewNotice(onClosed func(error)) *Notice {
	return &Notice{call: onClosed, turn: make(chan struct{}, 1)}
}

// Broke reports that the link broke. Calls after the first one, or after End, have no effect.
func (n *Notice) Broke(err error) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
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
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	whole := !n.over
	n.over = true
	return whole
}
