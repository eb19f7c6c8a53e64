package engine

import "sync"

// again contains the messages of one publisher that are to be sent again, because their link broke before the confirm.
// They stay in flight. The confirm side and the publisher add messages, and the publisher takes them. nil is valid:
// nothing is sent again.
type again struct {
	mu     sync.Mutex
	tokens []uint32
}

// add adds a message. It returns false if nothing is sent again.
func (a *again) add(token uint32) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = append(a.tokens, token)
	return true
}

// take removes and returns all messages.
func (a *again) take() []uint32 {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	tokens := a.tokens
	a.tokens = nil
	return tokens
}
