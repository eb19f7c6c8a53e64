package engine

import (
	"fmt"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// Kinds of events that the engine itself records.
const (
	eventClosed = "closed" // a link broke
	eventError  = "error"
	eventJoined = "joined"
	eventLeft   = "left"
)

const (
	maxWarnings       = 3    // events per kind of error; the counters contain all errors
	maxLifetimeEvents = 1000 // events of threads that connect and disconnect; the counters contain all of them
)

// journal records the events of this agent's part, and counts that belong to no message. It is safe for concurrent use.
// Its lock is never taken per message.
type journal struct {
	timeline *timeline

	mu             sync.Mutex
	counts         *record.Recorder // nil until the start time is known
	events         []record.Event
	blockedSince   map[string]int64 // by detail
	warnings       map[string]int
	lifetimeEvents int
}

func newJournal(t *timeline) *journal {
	return &journal{timeline: t, blockedSince: map[string]int64{}, warnings: map[string]int{}}
}

// begin creates the journal's recorder. It is called when the start time is known.
func (j *journal) begin(c *record.Collector) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts = c.Recorder()
	for detail := range j.blockedSince {
		j.blockedSince[detail] = -int64(j.timeline.warmup)
	}
}

// now returns the time of an event, ns since T0, or 0 before the start time is known. The caller holds mu.
func (j *journal) now() int64 {
	if j.counts == nil {
		return 0
	}
	return j.timeline.now()
}

// event records an event of a driver or a link. The time between blocked and unblocked is counted separately per
// detail.
func (j *journal) event(kind drivers.EventKind, detail string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now()
	j.events = append(j.events, record.Event{At: now, Kind: string(kind), Detail: detail})
	switch kind {
	case drivers.EventBlocked:
		if _, already := j.blockedSince[detail]; !already {
			j.blockedSince[detail] = now
		}
	case drivers.EventUnblocked:
		j.unblocked(detail)
	}
}

// unblocked counts a blocked time that has ended, from the beginning of the load. The caller holds mu.
func (j *journal) unblocked(detail string) {
	since, was := j.blockedSince[detail]
	delete(j.blockedSince, detail)
	if !was || j.counts == nil { // the blocked time was entirely before the start
		return
	}
	now := j.timeline.now()
	if since = max(since, -int64(j.timeline.warmup)); now > since {
		j.counts.Window(now, j.timeline.contains(now)).Counts[record.ConnBlockedNanos] += now - since
	}
}

// interval records an event with a duration. from and to are readings of the clock.
func (j *journal) interval(kind, detail string, from, to int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, record.Event{At: from - j.timeline.origin.Load(), Kind: kind, Nanos: to - from,
		Detail: fmt.Sprintf("%s, took %v", detail, time.Duration(to-from).Round(time.Microsecond))})
}

// outage records how long a link was down. since is a reading of the clock.
func (j *journal) outage(name string, since int64, ended bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, took := j.now(), clock.Now()-since
	result := "reconnected"
	if !ended {
		result = "not reconnected"
	}
	j.events = append(j.events, record.Event{At: now - took, Kind: record.EventGap, Nanos: took, Lasting: !ended,
		Detail: fmt.Sprintf("%s %s after %v", name, result, time.Duration(took).Round(time.Microsecond))})
}

// lifetime records that a thread connected or disconnected because of its lifetime.
func (j *journal) lifetime(name, kind string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lifetimeEvents++; j.lifetimeEvents > maxLifetimeEvents {
		return
	}
	detail := name
	if j.lifetimeEvents == maxLifetimeEvents {
		detail += "; those of this agent that follow are only counted"
	}
	j.events = append(j.events, record.Event{At: j.now(), Kind: kind, Detail: detail})
}

// warn records the first maxWarnings errors of a kind.
func (j *journal) warn(what string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.warnings[what]++; j.warnings[what] <= maxWarnings {
		j.events = append(j.events, record.Event{At: j.now(), Kind: eventError,
			Detail: fmt.Sprintf("%s: %v", what, err)})
	}
}

// count adds n to a counter, for events whose owner has no recorder. Events before the start time is known are not
// counted.
func (j *journal) count(c record.Counter, n int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.counts == nil {
		return
	}
	j.counts.Window(j.now(), false).Counts[c] += n
}

// observe records n samples of ns each. at is a reading of the clock. Samples before the start time is known are not
// recorded.
func (j *journal) observe(at int64, s record.Series, ns int64, n uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.counts == nil {
		return
	}
	at -= j.timeline.origin.Load()
	j.counts.Window(at, j.timeline.contains(at)).RecordN(s, ns, n)
}

// take returns the events since the last call and flushes the counts. final also counts blocked times that have not
// ended.
func (j *journal) take(final bool) []record.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	if final {
		for detail := range j.blockedSince {
			j.unblocked(detail)
		}
	}
	if j.counts != nil {
		j.counts.Flush()
	}
	events := j.events
	j.events = nil
	return events
}
