package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"time"

	"lockstep/internal/display"
	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/wire"
)

// maxRuns limits the list of runs, unless the request has the parameter all.
const maxRuns = 100

// runLine is a run in the list, from the control plane or from a stored copy.
type runLine struct {
	wire.RunState
	Kept bool // only a copy is left
	Took string
}

// runs returns the page of queued, running and ended runs, the newest first.
func (s *site) runs(r *http.Request) (view, error) {
	states, err := s.Conn.Runs(r.Context())
	if err != nil {
		return view{}, err
	}
	stored, err := s.store.list()
	if err != nil {
		return view{}, err
	}
	now, known := time.Now(), map[string]bool{}
	var active, over []runLine
	for _, state := range slices.Backward(states) {
		known[state.Run] = true
		line := runLine{RunState: state, Took: display.Took(state.Started, state.Ended, now)}
		if state.Over() {
			over = append(over, line)
		} else {
			active = append(active, line)
		}
	}
	for _, b := range stored {
		if !known[b.ID] {
			over = append(over, runLine{RunState: wire.RunState{Run: b.ID, Name: b.Name, Submitted: b.Started,
				Started: b.Started}, Kept: true})
		}
	}
	slices.SortStableFunc(over, func(a, b runLine) int { return b.Submitted.Compare(a.Submitted) })
	slices.Reverse(active) // runs in progress come first
	slices.SortStableFunc(active, func(a, b runLine) int { return rank(a) - rank(b) })
	body := struct {
		Active, Over []runLine
		More         int
	}{active, over, 0}
	if over := len(over); over > maxRuns && !r.URL.Query().Has("all") {
		body.Over, body.More = body.Over[:maxRuns], over-maxRuns
	}
	v := view{Page: "runs", Title: "Runs", Body: body}
	if len(active) > 0 {
		v.Refresh = 10
	}
	return v, nil
}

func rank(r runLine) int {
	if r.State == wire.StateRunning {
		return 0
	}
	return 1
}

// runView is the page of a run.
type runView struct {
	State    wire.RunState
	Kept     bool
	Known    bool // the plan has been read
	Plan     plan.Run
	Summary  string
	Tables   []report.Table
	Problems []string
	Warnings []string
	Rules    []report.Ruling
	Files    []link
	Live     *liveView
	Took     string
	Facts    []report.Fact
	// From names the source of the numbers.
	From    string
	Copying bool // the copy of its record is still being made
}

// link is a link on a page.
type link struct{ To, Title string }

// maxRows limits the rows of a table on a page.
const maxRows = 1000

func (s *site) run(r *http.Request) (view, error) {
	id, ctx := r.PathValue("run"), r.Context()
	state, err := s.Conn.RunState(ctx, id)
	if err != nil {
		return view{}, err
	}
	v := runView{State: state, Took: display.Took(state.Started, state.Ended, time.Now())}
	outcomes, err := s.outcomes(ctx, &v, id)
	if err != nil {
		return view{}, err
	}
	if v.Known {
		v.Summary, v.Problems, v.Warnings = report.Summary(v.Plan, outcomes), report.Failures(v.Plan, outcomes),
			append(report.Limitations(v.Plan, outcomes), report.Warnings(v.Plan, outcomes)...)
		v.Tables = shortened(report.Build(v.Plan, outcomes))
		v.Facts = report.Facts(v.Plan, outcomes)
		if v.over() { // tasks that have not run yet are a problem only after the end
			v.Problems, v.Rules = report.Problems(v.Plan, outcomes), report.Rulings(v.Plan, outcomes)
		}
	}
	for _, name := range s.store.has(id) {
		i := slices.IndexFunc(files, func(f struct{ Name, Type, Title string }) bool { return f.Name == name })
		v.Files = append(v.Files, link{"/runs/" + url.PathEscape(id) + "/" + name, files[i].Title})
	}
	v.Copying = s.copying(v)
	out := view{Page: "run", Title: id, Body: v}
	switch {
	case !v.over():
		out.Script, out.Refresh = true, 10
	case v.Copying:
		out.Refresh = 3
	}
	return out, nil
}

// copyFor is how long after the end of a run the page waits for its copy.
const copyFor = 5 * time.Minute

// copying reports whether the copy of an ended run is still being made.
func (s *site) copying(v runView) bool {
	return s.Copies != "" && v.State.Over() && !v.State.Copied && time.Since(v.State.Ended) < copyFor
}

// shortened cuts tables to maxRows and adds a remark to each that it has cut.
func shortened(tables []report.Table) []report.Table {
	for i := range tables {
		if t := &tables[i]; len(t.Rows) > maxRows {
			t.Remarks = append(t.Remarks, fmt.Sprintf("%d more rows in the files of the run", len(t.Rows)-maxRows))
			t.Rows = t.Rows[:maxRows]
		}
	}
	return tables
}

// over reports whether the run has ended.
func (v *runView) over() bool { return v.Kept || v.State.Over() }

// outcomes reads a run from its most complete source. That is the copy if the run has ended and the copy has all its
// outcomes. Else it is the record on the control plane, or the copy if there is no record.
func (s *site) outcomes(ctx context.Context, v *runView, id string) ([]plan.Outcome, error) {
	run, copied, missing := s.store.read(id)
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		return nil, missing
	}
	known := v.State.Run != ""
	if missing == nil && (!known || v.State.Over() && len(copied) >= v.State.Done) {
		v.Plan, v.Known, v.Kept, v.From = run, true, !known, "its copy on this host"
		return copied, nil
	}
	if !known {
		return nil, fs.ErrNotExist
	}
	planned, outcomes, err := s.recorded(ctx, v, id)
	switch {
	case err == nil && planned.ID != "":
		v.Plan, v.Known, v.From = planned, true, "the control plane"
		return outcomes, nil
	case missing == nil:
		v.Plan, v.Known, v.From = run, true, "its copy on this host, which may be incomplete"
		return copied, nil
	case err == nil || errors.Is(err, wire.ErrNoRecord): // queued, rejected, or its record was deleted
		return nil, nil
	}
	return nil, err
}

// recorded reads a run from the control plane. A run in progress includes its live view.
func (s *site) recorded(ctx context.Context, v *runView, id string) (plan.Run, []plan.Outcome, error) {
	if v.over() {
		l := newRunInfo()
		_, err := s.Conn.ReadSummary(ctx, id, l.entry)
		return l.Run, l.inOrder(), err
	}
	w, leave, err := s.followers.look(ctx, id)
	if err != nil {
		return plan.Run{}, nil, err
	}
	defer leave()
	w.settle(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	live := w.at.view(time.Now())
	v.Live = &live
	return w.at.Run, w.at.inOrder(), nil
}

// agents returns the page of the fleet's agents.
func (s *site) agents(r *http.Request) (view, error) {
	all, err := s.Conn.Agents(r.Context())
	if errors.Is(err, wire.ErrNoController) {
		// the layout shows that no controller leads
		return view{Page: "agents", Title: "Agents", Body: []wire.AgentInfo(nil), Refresh: 5}, nil
	}
	return view{Page: "agents", Title: "Agents", Body: all, Refresh: 5}, err
}
