// Package sink writes the record of a run to InfluxDB 2 while the run continues. A Stream converts the record to
// points. A Sink sends them in batches, concurrently with the run.
//
// InfluxDB never slows or fails a run. A bounded queue in memory accepts points without waiting. Points that the queue
// or InfluxDB refuses are dropped and counted, and Close waits at most Tuning.Flush. A replay of the record writes
// dropped points later.
//
// Only this package uses the Influx client. dashboards/SCHEMA.md describes the points.
package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	influxdb2 "github.com/influxdata/influxdb-client-go/v2"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// Tuning sets the limits of a Sink. A field of 0 has the default in its comment.
type Tuning struct {
	// maximum number of waiting lines: 20,000, about 30 MB; four agents make about ten per second
	Queue     int
	Batch     int               // maximum number of lines in a request: 1,000
	Linger    time.Duration     // time that a batch waits for more lines: 1 s
	Request   time.Duration     // deadline of a request: 5 s
	Flush     time.Duration     // maximum time that Close waits: 5 s
	MinPause  time.Duration     // pause before the first retry of a batch: 250 ms; it doubles with each retry
	MaxPause  time.Duration     // maximum pause between retries: 5 s
	Patience  time.Duration     // time without progress after which AwaitSpace and Drain give up: 30 s
	Transport http.RoundTripper // HTTP over TCP
}

func (t Tuning) withDefaults() Tuning {
	return Tuning{
		Queue:     cmp.Or(t.Queue, 20_000),
		Batch:     cmp.Or(t.Batch, 1000),
		Linger:    cmp.Or(t.Linger, time.Second),
		Request:   cmp.Or(t.Request, 5*time.Second),
		Flush:     cmp.Or(t.Flush, 5*time.Second),
		MinPause:  cmp.Or(t.MinPause, 250*time.Millisecond),
		MaxPause:  cmp.Or(t.MaxPause, 5*time.Second),
		Patience:  cmp.Or(t.Patience, 30*time.Second),
		Transport: t.Transport,
	}
}

// Sink writes the record of one run. Its methods must be called in the order of the record, from one goroutine. Methods
// of a nil Sink do nothing.
type Sink struct {
	target  Target
	tune    Tuning
	version string
	log     *slog.Logger
	http    *http.Client
	writer  *writer
	ctx     context.Context // of the writer
	stop    context.CancelCauseFunc
	stream  *stream // nil before Begin
	begun   bool    // the writer runs
	counts  counts
	closed  bool
}

// Open returns a sink. It sends nothing before the first point. version is this program's version, for InfluxDB's log.
func Open(target Target, tune Tuning, version string, log *slog.Logger) *Sink {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	tune = tune.withDefaults()
	options := influxdb2.DefaultOptions().SetUseGZip(true).SetApplicationName("lockstep/" +
		version).SetPrecision(time.Nanosecond)
	client := httpClient(tune)
	options.SetHTTPClient(client)
	api := influxdb2.NewClientWithOptions(target.url, target.token, options).WriteAPIBlocking(target.org, target.bucket)
	s := &Sink{target: target, tune: tune, version: version, log: log, http: client}
	s.counts.begin(target)
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.writer = &writer{api: api, queue: &queue{size: tune.Queue, batch: tune.Batch, linger: tune.Linger,
		changed: make(chan struct{}, 1), taken: s.counts.changed, closed: make(chan struct{})},
		tune: tune, log: log, scrub: target.scrub.Scrub, counts: &s.counts, done: make(chan struct{})}
	return s
}

// ForReplay opens another sink for the same InfluxDB, with the same counters, to replay the record. Points that it does
// not write are Left, not Dropped. patience can only reduce Tuning.Patience.
func (s *Sink) ForReplay(patience time.Duration) *Sink {
	if s == nil {
		return nil
	}
	tune := s.tune
	tune.Patience = min(patience, tune.Patience)
	replay := Open(s.target, tune, s.version, s.log)
	replay.counts.d.Replayed, replay.counts.into = true, s.counts.into
	return replay
}

// Log returns the logger of the sink.
func (s *Sink) Log() *slog.Logger { return s.log }

// ErrAway is wrapped by the errors of AwaitSpace and Drain.
var ErrAway = errors.New("InfluxDB accepted no points")

// AwaitSpace waits until half of the queue is free. A caller that makes points faster than a run needs it. The error
// wraps ErrAway if InfluxDB accepts no point for Tuning.Patience. AwaitSpace fails at once if ctx has ended.
func (s *Sink) AwaitSpace(ctx context.Context) error {
	return s.await(ctx, func() bool { return s.writer.queue.len() <= s.tune.Queue/2 })
}

// Drain waits until every point is written or dropped. Unlike Close, it waits as long as InfluxDB accepts points. Its
// errors are those of AwaitSpace.
func (s *Sink) Drain(ctx context.Context) error {
	return s.await(ctx, func() bool { d := s.counts.delivery(); return d.Points == drained(d) })
}

func drained(d plan.Delivery) int64 { return d.Written + d.Dropped + d.Left }

func (s *Sink) await(ctx context.Context, enough func() bool) error {
	if s == nil || !s.begun {
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	late := time.NewTimer(s.tune.Patience)
	defer late.Stop()
	for before := int64(-1); !enough(); {
		if now := drained(s.counts.delivery()); now != before {
			before = now
			late.Reset(s.tune.Patience)
		}
		select {
		case <-s.counts.changed:
		case <-late.C:
			return fmt.Errorf("%w for %v: %s", ErrAway, s.tune.Patience,
				cmp.Or(s.counts.delivery().LastError, "no response"))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// write starts the writer once.
func (s *Sink) write() {
	if !s.begun {
		s.begun = true
		go s.writer.run(s.ctx)
	}
}

// Begin writes the start of a run.
func (s *Sink) Begin(run plan.Run) {
	if s == nil {
		return
	}
	s.write()
	s.stream = newStream(run)
	s.put(s.stream.begin())
}

// Start writes the start of an attempt.
func (s *Sink) Start(b Start) {
	if s != nil && s.stream != nil {
		s.put(s.stream.start(b))
	}
}

// Snapshot writes a snapshot of an attempt in flight, which is not changed.
func (s *Sink) Snapshot(x record.Snapshot) {
	if s != nil && s.stream != nil {
		s.put(s.stream.snapshot(x))
	}
}

// Outcome writes the outcome of a task. b is used only if the task was not started here.
func (s *Sink) Outcome(o plan.Outcome, b Start) {
	if s != nil && s.stream != nil {
		s.put(s.stream.outcome(o, b))
	}
}

// GiveUp writes the end of an attempt without an outcome.
func (s *Sink) GiveUp(task string, at time.Time, why string) {
	if s != nil && s.stream != nil {
		s.put(s.stream.giveUp(task, at, why))
	}
}

// End writes the end of the run. reason is a word.
func (s *Sink) End(at time.Time, reason string) {
	if s != nil && s.stream != nil {
		s.counts.change(func(d *plan.Delivery) { d.End = reason })
		s.put(s.stream.end(at, reason))
	}
}

// put queues points without waiting.
func (s *Sink) put(points []Point) {
	lines := make([]string, 0, len(points))
	for _, p := range points {
		if line := p.line(); line != "" {
			lines = append(lines, line)
		}
	}
	s.counts.change(func(d *plan.Delivery) { d.Points += int64(len(points)) })
	s.counts.drop(whyTime, len(points)-len(lines))
	s.counts.drop(whyFull, s.writer.queue.add(lines))
}

// Close sends the waiting points, for at most Tuning.Flush or until ctx ends, drops the rest, and returns the counts. A
// second call only returns the counts. The receiver may be nil.
func (s *Sink) Close(ctx context.Context) plan.Delivery {
	if s == nil {
		return plan.Delivery{}
	}
	if !s.closed {
		s.closed = true
		s.write()
		close(s.writer.queue.closed)
		enough := fmt.Errorf("no response within %v after the end of the run", s.tune.Flush)
		late := time.AfterFunc(s.tune.Flush, func() { s.stop(enough) })
		defer late.Stop()
		defer context.AfterFunc(ctx, func() { s.stop(context.Cause(ctx)) })()
		<-s.writer.done // the writer's requests end with its context
		s.stop(nil)
		s.counts.change(func(d *plan.Delivery) { d.Ended = time.Now().UTC() })
		s.http.CloseIdleConnections()
	}
	return s.counts.delivery()
}

// Remark is a finding about a run that has ended: a word for its kind, and a sentence.
type Remark struct{ Kind, Text string }

// Remark writes findings as events at the start time of the run, each a nanosecond after the previous one. So the same
// findings are the same points.
func (s *Sink) Remark(run plan.Run, found []Remark) {
	if s == nil || len(found) == 0 {
		return
	}
	s.write()
	points := make([]Point, len(found))
	for i, r := range found {
		points[i] = Point{measureEvent, map[string]string{"run": run.ID, "matrix": run.Name, "kind": r.Kind},
			map[string]any{"text": text(r.Text)}, run.Started.Add(time.Duration(i))}
	}
	s.put(points)
}

// Count adds this sink's points to counters from now on. It must be called before Begin.
func (s *Sink) Count(into *Counters) {
	if s != nil {
		s.counts.into = into
	}
}
