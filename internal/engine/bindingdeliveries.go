package engine

import (
	"encoding/binary"
	"sync"

	"example.org/lockstep/lockstep/internal/record"
)

// Kinds of envelopes. Messages through bindings that are made during the load (churn) have a kind of their own.
// Consumers keep these out of the ledger, the rates and the latencies of ordinary messages. In their envelopes the
// sequence counts binding messages only. The intended send time is that of the Bind call. The first eight bytes of
// its payload are the number of the binding.
const (
	kindMessage = iota
	kindBinding
)

const bindingSize = 8

// newBindingBody returns the body of a binding message. Its send time is now.
func newBindingBody(e *Engine, m *churnMessage) []byte {
	body := make([]byte, max(e.work.Message.Size, EnvelopeSize+bindingSize))
	binary.LittleEndian.PutUint64(body[EnvelopeSize:], m.b.number)
	sum := stamp(body, e.task, e.clockID, 0)
	body[1] = kindBinding
	put(body, sum, m.number, m.b.due, e.timeline.now(), e.correction.Load())
	return body
}

// bindingOf returns the number of the binding from a verified body. It returns false if the body is too short.
func bindingOf(body []byte) (uint64, bool) {
	if len(body) < EnvelopeSize+bindingSize {
		return 0, false
	}
	return binary.LittleEndian.Uint64(body[EnvelopeSize:]), true
}

// bindingDeliveries records the messages that the consumers of one agent received through new bindings.
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

// receive records one verified message. The first message of each binding on this agent is kept separately. Whether it
// is the first of all agents is decided later, from the records of all agents.
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
		return // a duplicate
	}
	if _, seen := r.seen[binding]; seen {
		w.Record(record.BindingMessage, now+e.clockCorrection(env)-env.send)
		return
	}
	r.seen[binding] = struct{}{}
	r.first = append(r.first, record.BindingDelivery{Binding: binding, Called: env.intended, Sent: env.send,
		At: now + e.clockCorrection(env)})
}

// flush passes the recorded messages to the collector. It returns the first deliveries per binding since the last call.
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
