package record

import (
	"testing"
	"time"
)

func BenchmarkWindow(b *testing.B) {
	r := NewCollector(time.Hour).Recorder()
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		r.Window(now, true).Counts[Sent]++
		now += 10
	}
}

// The cost per message of counting 50 flows.
func BenchmarkWindowFlow(b *testing.B) {
	r := NewCollector(time.Hour).Recorder()
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		r.Window(now, true).Deliver(49)
		now += 10
	}
}

// Messages of both sides of the measurement's beginning or end are mixed.
func BenchmarkWindowMixed(b *testing.B) {
	r := NewCollector(time.Hour).Recorder()
	b.ReportAllocs()
	now := int64(0)
	for b.Loop() {
		r.Window(now, now&16 != 0).Counts[Sent]++
		now += 10
	}
}

func BenchmarkHistRecord(b *testing.B) {
	h := NewHist()
	b.ReportAllocs()
	ns := int64(50_000)
	for b.Loop() {
		h.Record(ns)
		ns = (ns*5 + 1) & (1<<20 - 1)
	}
}

func BenchmarkWindowRecord(b *testing.B) {
	w := new(Window)
	b.ReportAllocs()
	ns := int64(50_000)
	for b.Loop() {
		w.Record(Publish, ns)
		ns = (ns*5 + 1) & (1<<20 - 1)
	}
}

// The cost of the loop itself.
func BenchmarkBaseline(b *testing.B) {
	i := uint64(0)
	for b.Loop() {
		i++
	}
	_ = i
}

// aSecond is the number of additions between two calls of Take.
const aSecond = 1 << 20

func handOver(r *Recorder) {
	r.Flush()
	r.collector.Take()
}

func BenchmarkSetAddInOrder(b *testing.B) {
	r := NewCollector(time.Hour).Recorder()
	s := r.Set(SetKey{})
	b.ReportAllocs()
	for i := range uint64(b.N) {
		s.Add(i)
		if i%aSecond == aSecond-1 {
			handOver(r)
		}
	}
}

// Four ranges are interleaved, as when four queues are drained.
func BenchmarkSetAddInterleavedBy4(b *testing.B) {
	r := NewCollector(time.Hour).Recorder()
	s := r.Set(SetKey{})
	b.ReportAllocs()
	for i := range uint64(b.N) {
		s.Add(i/4 + i%4*50_000_000)
		if i%aSecond == aSecond-1 {
			handOver(r)
		}
	}
}

// Four publishers alternate.
func BenchmarkSetAddFourSets(b *testing.B) {
	r := NewCollector(time.Hour).Recorder()
	var s [4]*Set
	for i := range s {
		s[i] = r.Set(SetKey{Publisher: i})
	}
	b.ReportAllocs()
	for i := range uint64(b.N) {
		s[i%4].Add(i / 4)
		if i%aSecond == aSecond-1 {
			handOver(r)
		}
	}
}

// Every fourth number is added, as by one of four consumers: no page is ever full.
func BenchmarkSetAddEveryFourth(b *testing.B) {
	r := NewCollector(time.Hour).Recorder()
	s := r.Set(SetKey{})
	b.ReportAllocs()
	for i := range uint64(b.N) {
		s.Add(4 * i)
		if i%aSecond == aSecond-1 {
			handOver(r)
		}
	}
}

func BenchmarkHandOverAndTake(b *testing.B) {
	c := NewCollector(0)
	r := c.Recorder()
	s := r.Set(SetKey{})
	b.ReportAllocs()
	sequence, now := uint64(0), int64(0)
	for b.Loop() {
		now += second
		w := r.Window(now, true)
		for i := range int64(1000) {
			w.Record(Publish, 100_000+i*i)
			s.Add(sequence)
			sequence++
		}
		r.Flush()
		c.Take()
	}
}

// The controller does this every 20 ms during the drain.
func BenchmarkAllIn100Million(b *testing.B) {
	m := NewMerged()
	const pages = 100_000_000 / pageSize
	for _, k := range []SetKind{SetSent, SetReceived} {
		s := SetPages{Key: SetKey{Kind: k}}
		for i := range uint64(pages) {
			s.Pages = append(s.Pages, Page{i, &full})
		}
		m.Add(Snapshot{Seq: uint64(k), Sets: []SetPages{s}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if !m.AllIn(1) {
			b.Fatal("not all in")
		}
	}
}

func BenchmarkTally100Million(b *testing.B) {
	m := NewMerged()
	for _, k := range []SetKind{SetSent, SetConfirmed, SetReceived} {
		s := SetPages{Key: SetKey{Kind: k}}
		for i := range uint64(100_000_000 / pageSize) {
			s.Pages = append(s.Pages, Page{i, &full})
		}
		m.Add(Snapshot{Seq: uint64(k), Sets: []SetPages{s}})
	}
	for b.Loop() {
		m.Accounting(1)
	}
}

func BenchmarkHistMarshal(b *testing.B) {
	h := NewHist()
	for i := range int64(1000) {
		h.Record(1_000_000 + i*1000)
	}
	b.ReportAllocs()
	for b.Loop() {
		h.encode()
	}
}
