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

	"lockstep/internal/live"
	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/report/chart"
	"lockstep/internal/wire"
)

const (
	liveCourse = 120 // live figures that are drawn: about two minutes
	liveEvery  = time.Second
	mostLatest = 5
)

// progress is how a run stands, from what its record says. It belongs to one goroutine.
type progress struct {
	run     plan.Run
	tasks   map[string]plan.Task
	pace    *live.Pace
	of, n   int
	task    plan.Task     // or step of it, under way
	attempt wire.RunEvent // began the task
	begun   time.Time     // of the run
	said    string        // what it waits for, or who was lost
	latest  []plan.Outcome
	all     map[string]plan.Outcome
	ref     wire.Ref
	meter   *live.Meter
	heard   bool // of the task under way
	course  []live.Figures
	end     *wire.End
}

func newProgress() *progress {
	return &progress{all: map[string]plan.Outcome{}, pace: live.NewPace(plan.Run{})}
}

// entry takes in one message of the record.
func (l *progress) entry(e wire.Entry) {
	switch {
	case e.Plan != nil:
		l.run, l.tasks, l.pace = *e.Plan, map[string]plan.Task{}, live.NewPace(*e.Plan)
		for _, t := range l.run.Tasks() {
			l.tasks[t.ID] = t
		}
	case e.Event != nil:
		l.event(*e.Event)
	case e.Outcome != nil:
		if e.Ref.Task == l.ref.Task {
			l.idle()
		}
		l.all[e.Outcome.Task] = *e.Outcome
		l.pace.Ended(*e.Outcome)
		l.latest = append(l.latest, *e.Outcome)
		if len(l.latest) > mostLatest {
			l.latest = slices.Delete(l.latest, 0, 1)
		}
	case e.Snapshot != nil && e.Ref == l.ref && l.attempt.CheckSnapshot(l.task, e.Snapshot) == nil:
		l.snapshot(*e.Snapshot)
	}
}

// idle says that no task is under way.
func (l *progress) idle() {
	l.ref, l.task, l.meter, l.course, l.heard = wire.Ref{}, plan.Task{}, nil, nil, false
}

func (l *progress) event(e wire.RunEvent) {
	if e.Of > 0 {
		l.of = e.Of
	}
	switch e.Kind {
	case wire.RunAccepted:
		l.begun, l.end = e.At, nil
	case wire.TaskStarted:
		l.task, l.n, l.attempt, l.said, l.course, l.heard = l.tasks[e.Task], e.N, e, e.Detail, nil, false
		if e.Load != nil {
			l.task = l.task.Step(e.Load.Rate, e.Load.Measure)
		}
		l.ref, l.meter = wire.Ref{Run: l.run.ID, Task: e.Task, Try: e.Try}, live.NewMeter(l.task, len(e.Agents))
	case wire.TryEnded, wire.TaskInterrupted:
		l.idle()
		l.said = e.Detail
	case wire.AgentLost, wire.WaitingAgents, wire.TakenOver:
		l.said = e.Detail
	case wire.RunEnded:
		l.end = e.End
	}
}

// snapshot makes figures a second of the task's own time apart: who opens the page in its middle is told the seconds before in one go.
func (l *progress) snapshot(s record.Snapshot) {
	if s.Host.Broker != "" && len(s.Windows) == 0 {
		return // an observer
	}
	l.heard = true
	if figures, due := l.meter.Add(s, time.Unix(0, s.At)); due {
		l.course = append(l.course, figures)
		if len(l.course) > liveCourse {
			l.course = slices.Delete(l.course, 0, len(l.course)-liveCourse)
		}
	}
}

// outcomes are those that there are, in the order of the run's tasks.
func (l *progress) outcomes() (all []plan.Outcome) {
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
	AtMost      bool // Of may become less
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
	Flows       []flow
	Told, Tells int // agents that have told of the last second, of so many
	Recent      int // seconds that latencies are of
	Chart       template.HTML
	Key         template.HTML
	Ended       string
}

// flow is what one group of the task, or the whole of it, does.
type flow struct {
	Group         string
	Known         bool
	Send, Receive float64
	Lag           float64
	Behind        bool
	Consumes      bool
	Latencies     []liveLatency
}

type liveLatency struct{ Name, P50, P99 string }

type taskLine struct {
	Cell    string
	Verdict plan.Verdict
	Why     string
}

type count struct {
	Verdict plan.Verdict
	N       int
}

func (l *progress) view(now time.Time) liveView {
	_, of := l.pace.All()
	if l.run.Until == nil {
		of = max(l.of, len(l.tasks))
	}
	v := liveView{Done: len(l.all), Of: of, AtMost: l.pace.AtMost(), N: l.n, Said: l.said, Agents: l.attempt.Agents}
	if !l.begun.IsZero() {
		v.Elapsed = short(now.Sub(l.begun))
	}
	if l.task.ID != "" {
		v.Cell, v.Repetition, v.TaskFor, v.Phase = l.task.Cell.Name(), l.task.Repetition, short(now.Sub(l.attempt.At)), l.phase()
	}
	if l.end != nil {
		v.Ended = string(l.end.Reason)
	} else if l.pace.Tasks() > 0 && !l.begun.IsZero() {
		since := time.Duration(0)
		if l.task.ID != "" {
			since = now.Sub(l.attempt.At)
		}
		v.Left = "about " + short(l.pace.Left(l.task.ID, since))
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
func (l *progress) phase() string {
	if len(l.course) == 0 && l.heard {
		return "its first seconds"
	}
	if len(l.course) == 0 {
		return "connecting; nothing has been heard of its agents yet"
	}
	w := l.task.Cell.Workload
	switch since := l.course[len(l.course)-1].Since; {
	case since == -1:
		return "warming up, until the load is steady"
	case since < 0:
		return "warming up"
	case since > w.Measure.D() && w.Publishers.Count == 0:
		return "draining"
	}
	return "measuring"
}

// draw fills in the newest figures and the chart of those before.
func (l *progress) draw(v *liveView) {
	if len(l.course) == 0 {
		return
	}
	newest := l.course[len(l.course)-1]
	v.Told, v.Tells, v.Recent = newest.Agents, newest.Of, live.RecentSeconds
	for _, f := range newest.Flows {
		one := flow{Group: f.Group, Known: f.Known, Send: f.Send, Receive: f.Receive, Lag: f.Lag, Behind: f.Behind, Consumes: f.Consumes}
		if f.Confirm.Samples > 0 {
			one.Latencies = append(one.Latencies, liveLatency{"send", latency(int64(f.Confirm.P50)), latency(int64(f.Confirm.P99))})
		}
		if f.Consumes && f.Processing.Samples > 0 {
			one.Latencies = append(one.Latencies, liveLatency{"processing", latency(int64(f.Processing.P50)), latency(int64(f.Processing.P99))})
		}
		v.Flows = append(v.Flows, one)
	}
	lines := l.lines()
	if len(lines) == 0 {
		return
	}
	plot := chart.Plot{Title: "messages a second over the seconds of the task",
		X: chart.Axis{Label: "seconds since the measurement began; negative: warm-up", Whole: true}, Y: chart.Axis{Label: "messages/s", Zero: true, Format: grouped}, Series: lines}
	v.Chart, v.Key = template.HTML(plot.SVG()), template.HTML(chart.Key(lines)) //nolint:gosec // chart escapes every text
}

// lines are what each flow sends and receives, as many as a chart can tell apart.
func (l *progress) lines() (lines []chart.Line) {
	for i, f := range l.course[len(l.course)-1].Flows {
		of := ""
		if f.Group != "" {
			of = ", " + f.Group
		}
		for _, kind := range []struct {
			name  string
			rate  func(live.Flow) float64
			shown bool
		}{
			{"sent", func(f live.Flow) float64 { return f.Send }, true},
			{"received", func(f live.Flow) float64 { return f.Receive }, f.Consumes},
		} {
			if !kind.shown || len(lines) == chart.Series {
				continue
			}
			line := chart.Line{Name: kind.name + of, Look: len(lines), Dash: len(lines) % 3}
			for _, at := range l.course {
				if i < len(at.Flows) && at.Flows[i].Known {
					x, y := at.Since.Seconds(), kind.rate(at.Flows[i])
					line.Points = append(line.Points, chart.Point{X: x, Y: y, Bare: true, Title: fmt.Sprintf("%.0f s: %s %s", x, grouped(y), line.Name)})
				}
			}
			if len(line.Points) > 0 {
				lines = append(lines, line)
			}
		}
	}
	return lines
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
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, fmt.Sprintf("%d live views are open already; the page loads itself again instead", maxStreams), http.StatusServiceUnavailable)
		return
	}
	looking, stop := context.WithTimeout(r.Context(), askTimeout)
	watch, leave, err := s.watches.look(looking, r.PathValue("run"))
	stop()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	s.stream(r.Context(), w, watch)
}

// stream writes the live view until the run has ended, is followed no longer, or the reader is gone.
func (s *site) stream(ctx context.Context, w http.ResponseWriter, watch *watch) {
	control := http.NewResponseController(w)
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	_, told := watch.view(time.Now())
	for {
		over := false
		select {
		case <-watch.over:
			over = true
		default:
		}
		view, outcomes := watch.view(time.Now())
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if s.part(w, view, outcomes > told) != nil || control.Flush() != nil || over {
			return
		}
		told = outcomes
		select {
		case <-tick.C:
		case <-watch.over:
		case <-ctx.Done():
			return
		}
	}
}

func (s *site) part(w http.ResponseWriter, v liveView, task bool) error {
	var text bytes.Buffer
	if err := pages["run"].ExecuteTemplate(&text, "live", v); err != nil {
		s.Log.Error("make a live view", "error", err)
		return err
	}
	name := "live"
	switch {
	case v.Ended != "":
		name = "end"
	case task:
		name = "task"
	}
	_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, strings.NewReplacer("\r", " ", "\n", "\ndata: ").Replace(text.String()))
	return err
}
