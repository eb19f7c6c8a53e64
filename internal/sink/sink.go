// Package sink writes what a run records to InfluxDB 2 while it goes on. A Stream makes points of the record, and of nothing else; a Sink
// hands them on in batches, beside the run. It promises that InfluxDB never slows or fails a run: handing over never waits, what InfluxDB does not
// take for the moment waits on disk, what does not fit or is refused is dropped and counted, and the end of a run waits for it at most as long as
// Tuning says. It is the
// only home of the Influx client. dashboards/SCHEMA.md describes the points.
package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
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
	Patience   time.Duration // that Room and Drain wait for InfluxDB to take anything: 30 s
	Spool      int64         // bytes on disk that wait while InfluxDB is away: 256 MiB, some 250,000 points; what comes then is dropped
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
	or(&t.Patience, 30*time.Second)
	if t.Spool == 0 {
		t.Spool = 256 << 20
	}
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
	ctx    context.Context // of the writer
	stop   context.CancelCauseFunc
	stream *Stream // nil before Begin
	begun  bool    // the writer runs
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
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.writer = &writer{api: api, queue: newQueue(tune.Queue, tune.Batch, tune.Linger, s.tally.dealt),
		tune: tune, log: log, scrub: target.scrub.Scrub, tally: &s.tally, done: make(chan struct{})}
	return s
}

// Spool has points that cannot be delivered wait in a folder below path, beyond the end of the process. Points for the same InfluxDB that one has left
// there are delivered first. It is called before Begin, or not at all. Where the folder cannot be used, points wait in memory alone.
func (s *Sink) Spool(path string) {
	if s == nil || s.begun {
		return
	}
	found, err := openSpool(path, s.target, s.tune.Spool)
	if err != nil {
		s.writer.log.Warn("points wait for InfluxDB in memory alone", "error", err)
		return
	}
	s.tally.made(int(found.lines))
	s.writer.spool = found
}

// ErrAway is wrapped by the error of who waits for an InfluxDB that takes nothing.
var ErrAway = errors.New("InfluxDB has taken no point")

// Room waits until there is room for more points: for who makes them faster than a run does. It fails when InfluxDB has taken none for Tuning.Patience.
func (s *Sink) Room(ctx context.Context) error {
	return s.await(ctx, func() bool { return s.writer.queue.len() <= s.tune.Queue/2 })
}

// Drain waits until all points are dealt with, for who has time, as a run has not: Close waits for Tuning.Flush alone. It fails as Room does.
func (s *Sink) Drain(ctx context.Context) error {
	return s.await(ctx, func() bool { d := s.tally.result(); return d.Points == d.Written+d.Dropped })
}

func (s *Sink) await(ctx context.Context, enough func() bool) error {
	if s == nil || !s.begun {
		return nil
	}
	late := time.NewTimer(s.tune.Patience)
	defer late.Stop()
	for dealt := int64(-1); !enough(); {
		if d := s.tally.result(); d.Written+d.Dropped != dealt {
			dealt = d.Written + d.Dropped
			late.Reset(s.tune.Patience)
		}
		select {
		case <-s.tally.dealt:
		case <-late.C:
			return fmt.Errorf("%w for %v: %s", ErrAway, s.tune.Patience, s.tally.result().LastError)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// write starts the writer, once.
func (s *Sink) write() {
	if !s.begun {
		s.begun = true
		go s.writer.run(s.ctx)
	}
}

// Begin is the run's plan.
func (s *Sink) Begin(run plan.Run) {
	if s == nil {
		return
	}
	s.write()
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

// Close sends what waits, for at most Tuning.Flush or until ctx ends, leaves the rest in the spool or, without one, drops it, and tells what came of all. It may be called
// again, and on nil.
func (s *Sink) Close(ctx context.Context) plan.Delivery {
	if s == nil {
		return plan.Delivery{}
	}
	if !s.closed {
		s.closed = true
		s.write()
		close(s.writer.queue.closed)
		enough := fmt.Errorf("no answer by the end of the run and %v more", s.tune.Flush)
		late := time.AfterFunc(s.tune.Flush, func() { s.stop(enough) })
		defer late.Stop()
		defer context.AfterFunc(ctx, func() { s.stop(context.Cause(ctx)) })()
		<-s.writer.done // its requests end with its context
		s.stop(nil)
		s.tally.change(func(d *plan.Delivery) { d.Ended = time.Now().UTC() })
		s.http.CloseIdleConnections()
	}
	return s.tally.result()
}

// Counters sum up what became of the points of sinks that share them. The zero value is ready; safe for concurrent use.
type Counters struct{ written, dropped, spooled atomic.Int64 }

// Points are how many were written and dropped since the process began, and how many were left on disk by sinks that were closed; one that is found there
// again counts again. Nil counts none.
func (c *Counters) Points() (written, dropped, spooled int64) {
	if c == nil {
		return 0, 0, 0
	}
	return c.written.Load(), c.dropped.Load(), c.spooled.Load()
}

// Count adds what becomes of this sink's points to counters, from now on. It is called before Begin.
func (s *Sink) Count(into *Counters) {
	if s != nil {
		s.tally.into = into
	}
}

// tally counts points. Safe for concurrent use.
type tally struct {
	mu    sync.Mutex
	d     plan.Delivery
	into  *Counters     // never nil after begin
	dealt chan struct{} // one: points were taken off the queue, written or dropped
}

func (t *tally) begin(to Target) {
	t.dealt, t.into = make(chan struct{}, 1), &Counters{}
	t.d = plan.Delivery{URL: to.scrub.Scrub(to.url), Org: to.org, Bucket: to.bucket, Began: time.Now().UTC(), Why: map[string]int64{}}
}

func (t *tally) change(f func(*plan.Delivery)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.d)
}

func (t *tally) made(n int) { t.change(func(d *plan.Delivery) { d.Points += int64(n) }) }
func (t *tally) spooled(n int64) {
	t.change(func(d *plan.Delivery) { d.Spooled += n })
	t.into.spooled.Add(n)
}

func (t *tally) retry() { t.change(func(d *plan.Delivery) { d.Retries++ }) }

func (t *tally) wrote(n int) {
	t.change(func(d *plan.Delivery) { d.Written += int64(n) })
	t.into.written.Add(int64(n))
	signal(t.dealt)
}

func (t *tally) drop(why string, n int) {
	if n == 0 {
		return
	}
	t.change(func(d *plan.Delivery) {
		d.Dropped += int64(n)
		d.Why[why] += int64(n)
	})
	t.into.dropped.Add(int64(n))
	signal(t.dealt)
}

// refuse drops what InfluxDB will never take as it is.
func (t *tally) refuse(status int, why string, n int) {
	t.change(func(d *plan.Delivery) { d.Refused = status })
	t.drop(why, n)
}

func (t *tally) failed(words string) { t.change(func(d *plan.Delivery) { d.LastError = words }) }
func (t *tally) end(reason string)   { t.change(func(d *plan.Delivery) { d.End = reason }) }

func (t *tally) result() plan.Delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.d
	if d.Ended.IsZero() {
		d.Ended = time.Now().UTC()
	}
	d.Why = make(map[string]int64, len(t.d.Why))
	for why, n := range t.d.Why {
		d.Why[why] = n
	}
	return d
}
