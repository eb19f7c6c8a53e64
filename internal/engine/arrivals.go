package engine

import (
	"encoding/binary"
	"sync"

	"lockstep/internal/record"
)

// Messages through bindings that are made while messages flow have envelopes of a kind of their own, by which consumers keep them out of
// the ledger, the rates and the latencies of all others. They have the message's number among them as sequence, the time at which the
// binding was asked for as due time, and the binding's number as the first eight bytes of the payload.
const (
	kindMessage = iota
	kindBinding
)

const bindingSize = 8

// newBindingBody makes the body of a message that is sent now.
func newBindingBody(e *Engine, m *churned) []byte {
	body := make([]byte, max(e.work.Message.Size, EnvelopeSize+bindingSize))
	binary.LittleEndian.PutUint64(body[EnvelopeSize:], m.b.number)
	sum := stamp(body, e.task, e.clockID, 0)
	body[1] = kindBinding
	put(body, sum, m.number, m.b.called, e.now(), e.correction.Load())
	return body
}

// bindingOf is the number of the binding through which a whole body came.
func bindingOf(body []byte) (uint64, bool) {
	if len(body) < EnvelopeSize+bindingSize {
		return 0, false
	}
	return binary.LittleEndian.Uint64(body[EnvelopeSize:]), true
}

// arrivals keeps what the consumers of one agent received through new bindings.
type arrivals struct {
	mu       sync.Mutex
	rec      *record.Recorder // nil until the start is known
	received *record.Set
	seen     map[uint64]struct{} // bindings
	first    []record.BindingReceipt
}

func (a *arrivals) record(c *record.Collector) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rec, a.seen = c.Recorder(), map[uint64]struct{}{}
	a.received = a.rec.Set(record.SetKey{Kind: record.SetBindingReceived})
}

// take takes one whole message. Of each binding the first is kept by itself: whether it is the first of all, only all agents know.
func (a *arrivals) take(e *Engine, env envelope, body []byte, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.rec.Window(now, e.counts(env.send))
	binding, ok := bindingOf(body)
	if !ok {
		w.Counts[record.Corrupt]++
		return
	}
	w.Counts[record.BindingReceived]++
	if !a.received.Add(env.sequence) {
		return // again
	}
	if _, seen := a.seen[binding]; seen {
		w.Record(record.BindingMessage, now+e.lead(env)-env.send)
		return
	}
	a.seen[binding] = struct{}{}
	a.first = append(a.first, record.BindingReceipt{Binding: binding, Called: env.due, Sent: env.send, At: now + e.lead(env)})
}

// flush hands over what was received, and returns the first of the bindings heard of since the last time.
func (a *arrivals) flush() []record.BindingReceipt {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rec == nil {
		return nil
	}
	a.rec.Flush()
	first := a.first
	a.first = nil
	return first
}
