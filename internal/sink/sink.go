// Package sink writes what a run records to InfluxDB 2 while it goes on. A Stream makes points of the record, and of nothing else; a Sink
// hands them on in batches, beside the run. It promises that InfluxDB never slows or fails a run: handing over never waits, what does not
// fit or is refused is dropped and counted, and the end of a run waits for it at most as long as Tuning says. It is the
// only home of the Influx client. dashboards/SCHEMA.md describes the points.
package sink

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	influxdb2 "github.com/influxdata/influxdb-client-go/v2"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// Tuning bounds what a Sink may take. The zero value of each field is replaced by the default named beside it.
type Tuning struct {
	Queue      int           // lines that wait: 20,000, some 30 MB; a run of four agents makes about ten a second
	Batch      int           // lines of one request: 1,000
	Linger     time.Duration // that a batch waits for more lines: 1 s
	Request    time.Duration // deadline of one request: 5 s
	Flush      time.Duration // that Close waits: 5 s
	LeastPause time.Duration // between two tries of one batch: 250 ms, doubling
	MostPause  time.Duration // to this: 5 s
}

func (t Tuning) whole() Tuning {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&t.Linger, time.Second)
	or(&t.Request, 5*time.Second)
	or(&t.Flush, 5*time.Second)
	or(&t.LeastPause, 250*time.Millisecond)
	or(&t.MostPause, 5*time.Second)
	if t.Queue == 0 {
		t.Queue = 20_000
	}
	if t.Batch == 0 {
		t.Batch = 1000
	}
	return t
}

// Sink takes the record of one run, in order, from one goroutine. A nil Sink takes everything and does nothing.
type Sink struct {
	target Target
	tune   Tuning
	http   *http.Client
	writer *writer
	stop   context.CancelCauseFunc
	stream *Stream // nil before Begin
	tally  tally
	closed bool
}

// Open starts a sink; nothing is sent before there is a point. version is this program's, for InfluxDB's log.
func Open(target Target, tune Tuning, version string, log *slog.Logger) *Sink {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	tune = tune.whole()
	options := influxdb2.DefaultOptions().SetUseGZip(true).SetApplicationName("lockstep/" + version).SetPrecision(time.Nanosecond)
	client := httpClient(tune)
	options.SetHTTPClient(client)
	api := influxdb2.NewClientWithOptions(target.url, target.token, options).WriteAPIBlocking(target.org, target.bucket)
	s := &Sink{target: target, tune: tune, http: client}
	s.tally.begin(target)
	ctx, stop := context.WithCancelCause(context.Background())
	s.stop = stop
	s.writer = &writer{api: api, queue: newQueue(tune.Queue, tune.Batch, tune.Linger),
		tune: tune, log: log, scrub: target.scrub.Scrub, tally: &s.tally, done: make(chan struct{})}
	go s.writer.run(ctx)
	return s
}

// Begin is the run's plan.
func (s *Sink) Begin(run plan.Run) {
	if s == nil {
		return
	}
	s.stream = NewStream(run)
	s.put(s.stream.Begin())
}

// Start is a task that begins.
func (s *Sink) Start(b Start) {
	if s != nil && s.stream != nil {
		s.put(s.stream.Start(b))
	}
}

// Snapshot is an increment of an agent's record of the task in flight; it stays the caller's.
func (s *Sink) Snapshot(x record.Snapshot) {
	if s != nil && s.stream != nil {
		s.put(s.stream.Snapshot(x))
	}
}

// Outcome is what came of a task; b counts only if the task was not started here.
func (s *Sink) Outcome(o plan.Outcome, b Start) {
	if s != nil && s.stream != nil {
		s.put(s.stream.Outcome(o, b))
	}
}

// GiveUp is a task that has no outcome.
func (s *Sink) GiveUp(task string, at time.Time, why string) {
	if s != nil && s.stream != nil {
		s.put(s.stream.GiveUp(task, at, why))
	}
}

// End is the end of the run; reason is a word.
func (s *Sink) End(at time.Time, reason string) {
	if s != nil && s.stream != nil {
		s.tally.end(reason)
		s.put(s.stream.End(at, reason))
	}
}

// put hands points over, without waiting.
func (s *Sink) put(points []Point) {
	lines := make([]string, 0, len(points))
	for _, p := range points {
		if line := p.line(); line != "" {
			lines = append(lines, line)
		}
	}
	s.tally.made(len(points))
	s.tally.drop(whyTime, len(points)-len(lines))
	s.tally.drop(whyFull, s.writer.queue.add(lines))
}

// Close sends what waits, for at most Tuning.Flush or until ctx ends, drops the rest, and tells what came of all. It may be called
// again, and on nil.
func (s *Sink) Close(ctx context.Context) plan.Delivery {
	if s == nil {
		return plan.Delivery{}
	}
	if !s.closed {
		s.closed = true
		close(s.writer.queue.closed)
		enough := fmt.Errorf("no answer by the end of the run and %v more", s.tune.Flush)
		late := time.AfterFunc(s.tune.Flush, func() { s.stop(enough) })
		defer late.Stop()
		defer context.AfterFunc(ctx, func() { s.stop(context.Cause(ctx)) })()
		<-s.writer.done // its requests end with its context
		s.stop(nil)
		s.http.CloseIdleConnections()
	}
	return s.tally.result()
}

// tally counts points. Safe for concurrent use.
type tally struct {
	mu sync.Mutex
	d  plan.Delivery
}

func (t *tally) begin(to Target) {
	t.d = plan.Delivery{URL: to.scrub.Scrub(to.url), Org: to.org, Bucket: to.bucket, Began: time.Now().UTC(), Why: map[string]int64{}}
}

func (t *tally) change(f func(*plan.Delivery)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.d)
}

func (t *tally) made(n int)  { t.change(func(d *plan.Delivery) { d.Points += int64(n) }) }
func (t *tally) wrote(n int) { t.change(func(d *plan.Delivery) { d.Written += int64(n) }) }
func (t *tally) retry()      { t.change(func(d *plan.Delivery) { d.Retries++ }) }

func (t *tally) drop(why string, n int) {
	if n == 0 {
		return
	}
	t.change(func(d *plan.Delivery) {
		d.Dropped += int64(n)
		d.Why[why] += int64(n)
	})
}

func (t *tally) failed(words string) { t.change(func(d *plan.Delivery) { d.LastError = words }) }
func (t *tally) end(reason string)   { t.change(func(d *plan.Delivery) { d.End = reason }) }

func (t *tally) result() plan.Delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.d.Ended.IsZero() {
		t.d.Ended = time.Now().UTC()
	}
	d := t.d
	d.Why = make(map[string]int64, len(t.d.Why))
	for why, n := range t.d.Why {
		d.Why[why] = n
	}
	return d
}
