package engine

import (
	"encoding/binary"
	"sync"

	"lockstep/internal/record"
)

// Messages through bindings that are made while messages flow have envelopes of a kind of their own, by which consumers
// keep them out of the ledger, the rates and the latencies of all others. They have the message's number among them as
// sequence, the time at which the call that makes the binding began as intended send time, and the binding's number as
// the first eight bytes of the payload.
const (
	kindMessage = iota
	kindBinding
)

const bindingSize = 8

// newBindingBody makes the body of a message that is sent now.
func newBindingBody(e *Engine, m *churnMessage) []byte {
	body := make([]byte, max(e.work.Message.Size, EnvelopeSize+bindingSize))
	binary.LittleEndian.PutUint64(body[EnvelopeSize:], m.b.number)
	sum := stamp(body, e.task, e.clockID, 0)
	body[1] = kindBinding
	put(body, sum, m.number, m.b.called, e.timeline.now(), e.correction.Load())
	return body
}

// bindingOf is the number of the binding through which a whole body came.
func bindingOf(body []byte) (uint64, bool) {
	if len(body) < EnvelopeSize+bindingSize {
		return 0, false
	}
	return binary.LittleEndian.Uint64(body[EnvelopeSize:]), true
}

// bindingDeliveries records what the consumers of one agent received through new bindings.
type bindingDeliveries struct {
	mu       sync.Mutex
	rec      *record.Recorder // nil until the start is known
	received *record.Set
	seen     map[uint64]struct{} // bindings
	first    []record.BindingDelivery
}

func (r *bindingDeliveries) begin(c *record.Collector) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec, r.seen = c.Recorder(), map[uint64]struct{}{}
	r.received = r.rec.Set(record.SetKey{Kind: record.SetBindingReceived})
}

// receive records one whole message. Of each binding the first is kept by itself: whether it is the first of all, only
// all agents know.
func (r *bindingDeliveries) receive(e *Engine, env envelope, body []byte, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.rec.Window(now, e.timeline.contains(env.send))
	binding, ok := bindingOf(body)
	if !ok {
		w.Counts[record.Corrupt]++
		return
	}
	w.Counts[record.BindingReceived]++
	if !r.received.Add(env.sequence) {
		return // again
	}
	if _, seen := r.seen[binding]; seen {
		w.Record(record.BindingMessage, now+e.clockCorrection(env)-env.send)
		return
	}
	r.seen[binding] = struct{}{}
	r.first = append(r.first, record.BindingDelivery{Binding: binding, Called: env.intended, Sent: env.send,
		At: now + e.clockCorrection(env)})
}

// flush hands over what was received, and returns the first delivery of each binding since the last call.
func (r *bindingDeliveries) flush() []record.BindingDelivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rec == nil {
		return nil
	}
	r.rec.Flush()
	first := r.first
	r.first = nil
	return first
}
