package web

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/report/chart"
	"lockstep/internal/wire"
)

// The live view shows the seconds of a task that all agents have told of: they report once a second, and a little late.
const (
	liveSeconds = 120 // kept
	liveBehind  = 2   // of the newest that any agent has told of
	liveRecent  = 10  // that latencies are over
	liveEvery   = time.Second
)

// live is how a run stands, from what its record says. It belongs to one goroutine.
type live struct {
	run      plan.Run
	tasks    map[string]plan.Task
	of, n    int
	task     plan.Task
	agents   []string
	started  time.Time // of the task
	begun    time.Time // of the run
	said     string    // what it waits for, or who was lost
	latest   []plan.Outcome
	all      map[string]plan.Outcome
	ref      wire.Ref
	seconds  map[int]*second
	newest   int
	measures bool
	told     int // of how many outcomes the last event told
	end      *wire.End
}

// second is what all agents did in one.
type second struct {
	sent, received int64
	send           *record.Hist
}

func newLive() *live { return &live{all: map[string]plan.Outcome{}, seconds: map[int]*second{}} }

// entry takes in one message of the record.
func (l *live) entry(e wire.Entry) {
	switch {
	case e.Plan != nil:
		l.run, l.tasks = *e.Plan, map[string]plan.Task{}
		for _, t := range l.run.Tasks() {
			l.tasks[t.ID] = t
		}
	case e.Event != nil:
		l.event(*e.Event)
	case e.Outcome != nil:
		if e.Ref.Task == l.ref.Task {
			l.ref, l.task = wire.Ref{}, plan.Task{}
		}
		l.all[e.Outcome.Task] = *e.Outcome
		l.latest = append(l.latest, *e.Outcome)
		if len(l.latest) > 5 {
			l.latest = slices.Delete(l.latest, 0, 1)
		}
	case e.Snapshot != nil && e.Ref == l.ref:
		l.snapshot(*e.Snapshot)
	}
}

func (l *live) event(e wire.RunEvent) {
	if e.Of > 0 {
		l.of = e.Of
	}
	switch e.Kind {
	case wire.RunAccepted:
		l.begun, l.end = e.At, nil
	case wire.TaskStarted:
		l.task, l.n, l.agents, l.started, l.said = l.tasks[e.Task], e.N, e.Agents, e.At, e.Detail
		l.ref = wire.Ref{Run: l.run.ID, Task: e.Task, Try: e.Try}
		l.seconds, l.newest, l.measures = map[int]*second{}, 0, false
	case wire.TryEnded, wire.TaskInterrupted:
		l.ref, l.task, l.said = wire.Ref{}, plan.Task{}, e.Detail
	case wire.AgentLost, wire.WaitingAgents, wire.TakenOver:
		l.said = e.Detail
	case wire.RunEnded:
		l.end = e.End
	}
}

func (l *live) snapshot(s record.Snapshot) {
	for _, w := range s.Windows {
		l.newest = max(l.newest, w.Index)
		l.measures = l.measures || w.Measured
		if w.Index < l.newest-liveSeconds {
			continue
		}
		at := l.seconds[w.Index]
		if at == nil {
			at = &second{send: record.NewHist()}
			l.seconds[w.Index] = at
		}
		at.sent += w.Counts[record.Sent]
		at.received += w.Counts[record.Received]
		if h := w.Hists[record.Send]; h != nil {
			at.send.Merge(h)
		}
	}
	for i := range l.seconds {
		if i < l.newest-liveSeconds {
			delete(l.seconds, i)
		}
	}
}

// outcomes are those that there are, in the order of the run's tasks.
func (l *live) outcomes() (all []plan.Outcome) {
	for _, t := range l.run.Tasks() {
		if o, done := l.all[t.ID]; done {
			all = append(all, o)
		}
	}
	return all
}

// liveView is what a page shows of it.
type liveView struct {
	Done, Of, N int
	Cell        string
	Repetition  int
	Phase       string
	Agents      []string
	Elapsed     string
	TaskFor     string
	Left        string
	Said        string
	Latest      []taskLine
	Counts      []count
	Rates       *rates
	Chart       template.HTML
	Key         template.HTML
	Ended       string
}

type taskLine struct {
	Cell    string
	Verdict plan.Verdict
	Why     string
}

type count struct {
	Verdict plan.Verdict
	N       int
}

// rates are those of the newest second that all have told of, and latencies of the last few.
type rates struct {
	Send, Receive float64
	P50, P99      string
}

func (l *live) view(now time.Time) liveView {
	v := liveView{Done: len(l.all), Of: max(l.of, len(l.tasks)), N: l.n, Said: l.said, Agents: l.agents}
	if !l.begun.IsZero() {
		v.Elapsed = short(now.Sub(l.begun))
	}
	if l.task.ID != "" {
		v.Cell, v.Repetition, v.TaskFor, v.Phase = l.task.Cell.Name(), l.task.Repetition, short(now.Sub(l.started)), l.phase()
	}
	if l.end != nil {
		v.Ended = string(l.end.Reason)
	} else if v.Done > 0 && v.Of > v.Done && !l.begun.IsZero() {
		v.Left = "about " + short(time.Duration(float64(now.Sub(l.begun))/float64(v.Done)*float64(v.Of-v.Done)))
	}
	for _, verdict := range []plan.Verdict{plan.Valid, plan.Invalid, plan.Unknown} {
		n := 0
		for _, o := range l.all {
			if o.Verdict == verdict {
				n++
			}
		}
		v.Counts = append(v.Counts, count{verdict, n})
	}
	for _, o := range slices.Backward(l.latest) {
		v.Latest = append(v.Latest, taskLine{l.tasks[o.Task].Cell.Name(), o.Verdict, strings.Join(o.Reasons, "; ")})
	}
	l.draw(&v)
	return v
}

// phase is what goes on, as far as what was sent tells.
func (l *live) phase() string {
	switch {
	case len(l.seconds) == 0:
		return "connecting, or its first second"
	case l.measures:
		return "measuring, or draining after it"
	}
	return "warming up"
}

// draw fills in the rates and their chart.
func (l *live) draw(v *liveView) {
	last := l.newest - liveBehind
	if l.seconds[last] == nil {
		return
	}
	v.Rates = &rates{Send: float64(l.seconds[last].sent), Receive: float64(l.seconds[last].received), P50: "–", P99: "–"}
	recent := record.NewHist()
	sent, received := chart.Line{Name: "sent"}, chart.Line{Name: "received", Look: 1, Dash: 1}
	for i := last - liveSeconds + liveBehind; i <= last; i++ {
		s := l.seconds[i]
		if s == nil {
			continue
		}
		gap := l.seconds[i-1] == nil
		sent.Points = append(sent.Points, livePoint(i, s.sent, "sent", gap))
		received.Points = append(received.Points, livePoint(i, s.received, "received", gap))
		if i > last-liveRecent {
			recent.Merge(s.send)
		}
	}
	if recent.Count() > 0 {
		v.Rates.P50, v.Rates.P99 = latency(recent.Quantile(0.5)), latency(recent.Quantile(0.99))
	}
	lines := []chart.Line{sent, received}
	plot := chart.Plot{Title: fmt.Sprintf("messages a second: %.0f sent and %.0f received in the newest second", v.Rates.Send, v.Rates.Receive),
		X: chart.Axis{Label: "seconds of the task; negative: warm-up", Whole: true}, Y: chart.Axis{Label: "messages/s", Zero: true, Format: grouped}, Series: lines}
	v.Chart, v.Key = template.HTML(plot.SVG()), template.HTML(chart.Key(lines)) //nolint:gosec // chart escapes every text
}

func livePoint(i int, n int64, what string, gap bool) chart.Point {
	return chart.Point{X: float64(i), Y: float64(n), Bare: true, Break: gap, Title: fmt.Sprintf("second %d: %s %s", i, grouped(float64(n)), what)}
}

// latency is one in three digits.
func latency(ns int64) string {
	for _, u := range []struct {
		name string
		ns   float64
	}{{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}} {
		if x := float64(ns) / u.ns; x >= 1 {
			return fmt.Sprintf("%.*f %s", digits(x), x, u.name)
		}
	}
	return "< 1 µs"
}

func digits(x float64) int {
	switch {
	case x >= 100:
		return 0
	case x >= 10:
		return 1
	}
	return 2
}

// live streams the live part of a run's page, made anew once a second, as server-sent events: "live", "task" where
// an outcome has come, and at last "end".
func (s *site) live(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("run")
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, fmt.Sprintf("%d live views are open already; the page loads itself again instead", mostStreams), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	l := newLive()
	looking, stop := context.WithTimeout(ctx, askTimeout)
	last, err := s.Conn.Outline(looking, id, l.entry)
	stop()
	l.told = len(l.all)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	entries := make(chan wire.Entry, 256)
	go func() {
		defer close(entries)
		_ = s.Conn.Onward(ctx, id, last, func(e wire.Entry) { // ends with ctx, or with the connection
			select {
			case entries <- e:
			case <-ctx.Done():
			}
		})
	}()

	w.Header().Set("Content-Type", "text/event-stream")
	s.stream(ctx, w, l, entries)
}

// stream writes the live view until the run has ended or the reader is gone.
func (s *site) stream(ctx context.Context, w http.ResponseWriter, l *live, entries <-chan wire.Entry) {
	control := http.NewResponseController(w)
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for send := true; ; {
		if send || l.end != nil {
			_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
			if s.part(w, l) != nil || control.Flush() != nil || l.end != nil {
				return
			}
		}
		select {
		case e, open := <-entries:
			if !open {
				return
			}
			l.entry(e)
			send = false
		case <-tick.C:
			send = true
		case <-ctx.Done():
			return
		}
	}
}

func (s *site) part(w http.ResponseWriter, l *live) error {
	var text bytes.Buffer
	if err := pages["run"].ExecuteTemplate(&text, "live", l.view(time.Now())); err != nil {
		s.Log.Error("make a live view", "error", err)
		return err
	}
	name := "live"
	switch {
	case l.end != nil:
		name = "end"
	case len(l.all) > l.told:
		name = "task"
	}
	l.told = len(l.all)
	_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, strings.NewReplacer("\r", " ", "\n", "\ndata: ").Replace(text.String()))
	return err
}
