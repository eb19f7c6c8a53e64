package record

import (
	"encoding/json"
	"fmt"
	"time"
)

// Limits of the decoded size of a snapshot, relative to its encoded size. They protect the memory of readers from
// hostile snapshots. Agents never write a list element in fewer bytes than minElement. Beyond a fixed allowance, their
// windows, histograms and pages never expand by more than these factors.
const (
	minElement   = 16
	freeWindows  = 1 << 13 // about 600 bytes each, while a snapshot is read
	bytesAWindow = 64
	freePayload  = 1 << 20 // bytes of histograms; each byte is at most one bucket
	payloadEach  = 2
	freePages    = 1 << 14 // pages neither full nor empty: 512 bytes each
	bytesAPage   = 32
)

// budget is the remaining allowance of the snapshot that is being read.
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

// list is a list in a snapshot. Its elements are counted before memory is allocated for them.
type list[T any] []T

func (l *list[T]) UnmarshalJSON(data []byte) error {
	limit := max(1, len(data)/minElement)
	if _, windows := any(l).(*list[windowText]); windows {
		limit = freeWindows + len(data)/bytesAWindow
	}
	n := elements(data)
	if n > limit {
		return fmt.Errorf("read snapshot: a list has %d elements in %d bytes: the bound is %d", n, len(data), limit)
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

// elements returns the number of elements of a valid JSON list.
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

// UnmarshalJSON decodes a snapshot. The memory that it allocates is proportional to the encoded size.
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

// CheckTimes returns an error if a time of the snapshot is further than limit from T0, in either direction. Call it
// before merging a snapshot of another process: judging allocates memory for every second that a record spans. Events
// and clock samples are not checked. They may be arbitrarily older than T0, and no memory depends on their times.
func (s *Snapshot) CheckTimes(limit time.Duration) error {
	times := []int64{s.At, s.Begin, s.Host.At, int64(s.Skew), s.LastSend, s.LastConfirm, s.LastDelivery,
		s.FirstDelivery, s.LastInterrupted}
	for _, w := range s.Windows {
		index := max(-1<<32, min(int64(w.Index), 1<<32)) // prevents overflow of the product
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
