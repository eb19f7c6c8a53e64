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

	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/wire"
)

// maxRuns bounds a list unless the request is for the whole of it.
const maxRuns = 100

// runLine is a run in the list: as the control plane knows it, or as a copy tells.
type runLine struct {
	wire.RunState
	Kept bool // the control plane does not know it any more
	Took string
}

// runs lists what waits, runs and has ended, the newest first.
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
		line := runLine{RunState: state, Took: took(state, now)}
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
	slices.Reverse(active) // those that run come first
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
	Known    bool // there is a plan
	Plan     plan.Run
	Summary  string
	Tables   []report.Table
	Problems []string
	Warnings []string
	Rules    []report.Ruling
	Files    []link
	Live     *liveView
	Took     string
	Brokers  []string
	// From is where its numbers were read.
	From    string
	Copying bool // its copy, with the report, is being made
}

// link is one that templates may use as it is.
type link struct{ To, Title string }

// maxRows bounds what of a table is shown.
const maxRows = 1000

func (s *site) run(r *http.Request) (view, error) {
	id, ctx := r.PathValue("run"), r.Context()
	state, err := s.Conn.RunState(ctx, id)
	if err != nil {
		return view{}, err
	}
	v := runView{State: state, Took: took(state, time.Now())}
	outcomes, err := s.outcomes(ctx, &v, id)
	if err != nil {
		return view{}, err
	}
	if v.Known {
		v.Summary, v.Problems, v.Warnings = report.Summary(v.Plan, outcomes), report.Failures(v.Plan, outcomes),
			report.Warnings(v.Plan, outcomes)
		v.Tables = shortened(report.Build(v.Plan, outcomes))
		v.Brokers = subjects(outcomes)
		if v.over() { // that tasks have not been run yet is no problem while they may be
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

// copyFor is for how long after its end a run's copy, with its report, is waited for.
const copyFor = 5 * time.Minute

// copying reports whether the copy of a run that has ended is being made.
func (s *site) copying(v runView) bool {
	return s.Copies != "" && v.State.Over() && !v.State.Copied && time.Since(v.State.Ended) < copyFor
}

// shortened cuts tables to what a browser shows at ease, and says so.
func shortened(tables []report.Table) []report.Table {
	for i := range tables {
		if t := &tables[i]; len(t.Rows) > maxRows {
			t.Remarks = append(t.Remarks, fmt.Sprintf("%d more rows are in the files of the run", len(t.Rows)-maxRows))
			t.Rows = t.Rows[:maxRows]
		}
	}
	return tables
}

// over reports whether nothing more comes of the run.
func (v *runView) over() bool { return v.Kept || v.State.Over() }

// outcomes reads a run from where most is known of it: the record, while it goes on or its copy is behind; else the
// copy.
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
		v.Plan, v.Known, v.From = run, true, "its copy on this host, which may not hold all of it"
		return copied, nil
	case err == nil || errors.Is(err, wire.ErrNoRecord): // it waits, was refused, or its record was deleted
		return nil, nil
	}
	return nil, err
}

// recorded reads a run from the control plane, with its live part while it goes on.
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

// subjects are what was really tested, each once.
func subjects(outcomes []plan.Outcome) (all []string) {
	for _, o := range outcomes {
		text := o.Subject.Product
		if text == "" {
			continue
		}
		for _, more := range []string{o.Subject.Version, o.Subject.Label} {
			if more != "" {
				text += " " + more
			}
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// agents lists who is there.
func (s *site) agents(r *http.Request) (view, error) {
	all, err := s.Conn.Agents(r.Context())
	if errors.Is(err, wire.ErrNoController) {
		// the frame says that nobody leads
		return view{Page: "agents", Title: "Agents", Body: []wire.AgentInfo(nil), Refresh: 5}, nil
	}
	return view{Page: "agents", Title: "Agents", Body: all, Refresh: 5}, err
}
