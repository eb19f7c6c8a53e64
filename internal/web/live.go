package web

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/chart"
	"example.org/lockstep/lockstep/internal/runview"
	"example.org/lockstep/lockstep/internal/wire"
)

const (
	liveEvery = time.Second
	maxLatest = 5
)

// runInfo is the state of a run with its outcomes. It is not safe for concurrent use.
type runInfo struct {
	state    *runview.State
	outcomes map[string]plan.Outcome // by task
	latest   []plan.Outcome
}

func newRunInfo() *runInfo {
	return &runInfo{state: runview.New(plan.Run{}), outcomes: map[string]plan.Outcome{}}
}

// entry applies the next entry of the record.
func (l *runInfo) entry(e wire.Entry) {
	l.state.Apply(e, time.Now())
	if e.Outcome == nil {
		return
	}
	l.outcomes[e.Outcome.Task] = *e.Outcome
	if l.latest = append(l.latest, *e.Outcome); len(l.latest) > maxLatest {
		l.latest = slices.Delete(l.latest, 0, 1)
	}
}

// inOrder returns the outcomes in the order of the run's tasks.
func (l *runInfo) inOrder() (all []plan.Outcome) {
	for _, t := range l.state.Run.Tasks() {
		if o, done := l.outcomes[t.ID]; done {
			all = append(all, o)
		}
	}
	return all
}

// liveView is the live part of a run's page. Its template shows each of its more than 20 fields.
type liveView struct {
	Done, Of, N int
	AtMost      bool // Of is an upper bound
	Cell        string
	Repetition  int
	Phase       string
	Agents      []string
	Elapsed     string
	Step        string // of a capacity search
	AttemptFor  string
	Left        string
	Note        string
	Latest      []taskLine
	Counts      []report.Count
	Flows       []runview.Flow
	Reported    int // agents that have reported the newest second, and their total
	Reporting   int
	Recent      int // seconds that the latencies cover
	Chart       template.HTML
	Key         template.HTML
	Ended       string
}

type liveLatency struct{ Name, P50, P99 string }

type taskLine struct {
	Cell    string
	Verdict plan.Verdict
	Why     string
}

func (l *runInfo) view(now time.Time) liveView {
	_, of := l.state.Pace.All()
	if l.state.Run.Until == nil {
		of = max(l.state.Of, l.state.Tasks())
	}
	v := liveView{Done: l.state.Outcomes(), Of: of, AtMost: l.state.Rounds.Open(), N: l.state.TaskN, Note: l.state.Note}
	if !l.state.Began.IsZero() {
		v.Elapsed = display.Elapsed(now.Sub(l.state.Began))
	}
	if a := l.state.Attempt; a != nil {
		v.Cell, v.Repetition, v.Step, v.Agents = a.Task.Cell.Name(), a.Task.Repetition, a.Started.Detail,
			a.Started.Agents
		v.AttemptFor = display.Elapsed(now.Sub(a.At))
		phase, _ := a.Phase(now)
		v.Phase = phaseText[phase]
		draw(&v, a)
	}
	if l.state.End != nil {
		v.Ended = string(l.state.End.Reason)
	} else if l.state.Pace.Tasks() > 0 && !l.state.Began.IsZero() {
		v.Left = "about " + display.Elapsed(l.state.Left(now))
	}
	for _, verdict := range []plan.Verdict{plan.Valid, plan.Invalid, plan.Unknown} {
		if n := l.state.Count(verdict); n > 0 {
			v.Counts = append(v.Counts, report.Count{What: verdict.Word(), N: n})
		}
	}
	for _, o := range slices.Backward(l.latest) {
		t, _ := l.state.TaskOf(o.Task)
		v.Latest = append(v.Latest, taskLine{t.Cell.Name(), o.Verdict, strings.Join(o.Reasons, "; ")})
	}
	return v
}

var phaseText = map[runview.Phase]string{
	runview.Connecting:  "connecting; no report from its agents yet",
	runview.UntilSteady: "warming up, until the load is steady",
	runview.WarmUp:      "warming up", runview.Measuring: "measuring", runview.Draining: "draining",
	runview.Abandoned: "its controller was lost; its agents stop it",
}

// draw fills in the newest metrics and the chart of the earlier ones.
func draw(v *liveView, a *runview.Attempt) {
	newest := a.Newest()
	if newest == nil {
		return
	}
	v.Reported, v.Reporting, v.Recent = newest.Agents, newest.Of, runview.RecentSeconds
	v.Flows = slices.Clone(newest.Flows)
	lines := linesOf(a.Series)
	if len(lines) == 0 {
		return
	}
	plot := chart.Plot{Title: "messages per second over time",
		X: chart.Axis{Label: "seconds since the start of the measurement; negative: warm-up", Whole: true},
		Y: chart.Axis{Label: "messages/s", Zero: true, Format: wholeNumber}, Series: lines}
	// nolint:gosec // chart escapes every text
	v.Chart, v.Key = template.HTML(plot.SVG()), template.HTML(chart.Key(lines))
}

// latencies returns the latencies of a group as text.
func latencies(f runview.Flow) (all []liveLatency) {
	if f.Publish.Samples > 0 {
		all = append(all, liveLatency{"publish", report.Latency(f.Publish.P50.Seconds()),
			report.Latency(f.Publish.P99.Seconds())})
	}
	switch {
	case f.Behind: // then latencies only measure the length of the queue
		all = append(all, liveLatency{"e2e", string(plan.Backlog), string(plan.Backlog)})
	case f.Consumes && f.EndToEnd.Samples > 0:
		all = append(all, liveLatency{"e2e", report.Latency(f.EndToEnd.P50.Seconds()),
			report.Latency(f.EndToEnd.P99.Seconds())})
	}
	return all
}

// linesOf returns the publish and consume rates of the flows as lines, at most as many as a chart can distinguish.
func linesOf(series []runview.Metrics) (lines []chart.Line) {
	for i, f := range series[len(series)-1].Flows {
		of := ""
		if f.Group != "" {
			of = ", " + f.Group
		}
		for _, kind := range []struct {
			name  string
			rate  func(runview.Flow) float64
			shown bool
		}{
			{"publish", func(f runview.Flow) float64 { return f.PublishRate }, true},
			{"consume", func(f runview.Flow) float64 { return f.ConsumeRate }, f.Consumes},
		} {
			if !kind.shown || len(lines) == chart.Series {
				continue
			}
			line := chart.Line{Name: kind.name + of, Look: len(lines), Dash: len(lines) % 3}
			for _, at := range series {
				if i < len(at.Flows) && at.Flows[i].Known && at.Since != runview.Unsteady { // its time is not known
					x, y := at.Since.Seconds(), kind.rate(at.Flows[i])
					line.Points = append(line.Points,
						chart.Point{X: x, Y: y, NoMarker: true,
							Title: fmt.Sprintf("%.0f s: %s %s", x, wholeNumber(y), line.Name)})
				}
			}
			if len(line.Points) > 0 {
				lines = append(lines, line)
			}
		}
	}
	return lines
}
