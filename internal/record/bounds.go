package record

import (
	"encoding/json"
	"fmt"
	"time"
)

// What a snapshot unpacks to is held against its size, so that nobody fills the memory of who reads it: no agent writes
// an element of a list in fewer bytes than this, whose histograms and pages unpack to more than that for each byte,
// beside what every snapshot may have.
const (
	minElement  = 16
	minWindow   = 20
	freePayload = 1 << 20 // bytes of histograms, of which each is a bucket
	payloadEach = 2
	freePages   = 1 << 14 // neither full nor empty: 512 bytes each
	bytesAPage  = 32
)

// budget is what is left of it for the snapshot that is being read.
type budget struct{ size, payload, pages int }

func newBudget(size int) *budget {
	return &budget{size: size, payload: freePayload + payloadEach*size, pages: freePages + size/bytesAPage}
}

func (b *budget) unpack(payload int) error {
	if b.payload -= payload; b.payload < 0 {
		return fmt.Errorf("its histograms unpack to more than %d bytes, the bound for %d bytes of snapshot",
			freePayload+payloadEach*b.size, b.size)
	}
	return nil
}

func (b *budget) page() error {
	if b.pages--; b.pages < 0 {
		return fmt.Errorf("it has more than %d pages of sets, the bound for %d bytes of snapshot",
			freePages+b.size/bytesAPage, b.size)
	}
	return nil
}

// list is a list of a snapshot, whose elements are counted before there is room for any.
type list[T any] []T

func (l *list[T]) UnmarshalJSON(data []byte) error {
	least := minElement
	if _, windows := any(l).(*list[windowText]); windows {
		least = minWindow
	}
	n := elements(data)
	if n > 1 && n*least > len(data) {
		return fmt.Errorf("read snapshot: a list has %d elements in %d bytes: the bound is one in %d bytes", n,
			len(data), least)
	}
	all := make([]T, 0, n)
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*l = nil
	if len(all) > 0 {
		*l = all
	}
	return nil
}

// elements counts the elements of a list in JSON, which is whole.
func elements(data []byte) (n int) {
	depth, text, some := 0, false, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text:
			if c == '\\' {
				i++
			}
			text = c != '"'
		case c == '"':
			text, some = true, true
		case c == '[' || c == '{':
			some = some || depth > 0
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 1:
			n++
		case c > ' ' && depth > 0:
			some = true
		}
	}
	if some {
		n++
	}
	return n
}

// UnmarshalJSON reads a snapshot, within memory that is bounded by its size.
func (s *Snapshot) UnmarshalJSON(data []byte) error {
	type plain Snapshot
	var v struct {
		plain
		Windows  list[windowText]      `json:"windows"`
		Sets     list[setPagesJSON]    `json:"sets"`
		Events   list[Event]           `json:"events"`
		Probes   list[ProbeSample]     `json:"probes"`
		Bindings list[BindingDelivery] `json:"bindings"`
		Clocks   list[ClockSample]     `json:"clocks"`
		Gaps     list[Gap]             `json:"gaps"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	read := Snapshot(v.plain)
	read.Events, read.Probes, read.Bindings, read.Clocks, read.Gaps = v.Events, v.Probes, v.Bindings, v.Clocks, v.Gaps
	left := newBudget(len(data))
	if len(v.Windows) > 0 {
		read.Windows = make([]Window, len(v.Windows))
	}
	for i := range v.Windows {
		if err := read.Windows[i].read(v.Windows[i], left); err != nil {
			return err
		}
	}
	if len(v.Sets) > 0 {
		read.Sets = make([]SetPages, len(v.Sets))
	}
	for i := range v.Sets {
		if err := read.Sets[i].read(v.Sets[i], left); err != nil {
			return err
		}
	}
	*s = read
	return nil
}

// CheckTimes returns an error if a time of the snapshot is further than limit from T0, before or after it. Whoever
// reads snapshots of other processes has to call it before he merges them: judging takes memory for every second that a
// record spans. Events and clock samples are left out: they may be older than T0 by any time, and no second is made for
// them.
func (s *Snapshot) CheckTimes(limit time.Duration) error {
	times := []int64{s.At, s.Begin, s.Host.At, int64(s.Skew), s.LastSend, s.LastConfirm, s.LastDelivery,
		s.LastInterrupted}
	for _, w := range s.Windows {
		index := max(-1<<32, min(int64(w.Index), 1<<32)) // no product of these is too large
		times = append(times, w.Start, index*second)
	}
	for _, g := range s.Gaps {
		times = append(times, g.From, g.To, g.Waited)
	}
	for _, p := range s.Probes {
		times = append(times, p.At)
	}
	for _, b := range s.Bindings {
		times = append(times, b.Called, b.Sent, b.At)
	}
	for _, t := range times {
		if t < -int64(limit) || t > int64(limit) {
			return fmt.Errorf("snapshot %d of agent %s has a time of %v since T0: want at most %v before or after it",
				s.Seq, s.Agent, time.Duration(t), limit)
		}
	}
	return nil
}
