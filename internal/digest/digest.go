// Package digest summarises the newest run of a matrix against its earlier runs: changed levels with their start and
// p-value, changed settings, new cells, failures, and rules that are not met. Rules and package compare evaluate
// baselines.
package digest

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/compare"
	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/history/change"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/stats"
)

// Digest is the summary of a run.
type Digest struct {
	Run        string          `json:"run"`
	Matrix     string          `json:"matrix"`
	Started    time.Time       `json:"started"`
	Summary    string          `json:"summary"`              // of the verdicts
	Problems   []string        `json:"problems,omitempty"`   // failures
	Unfinished string          `json:"unfinished,omitempty"` // number of tasks without an outcome; empty: none
	Rules      []report.Ruling `json:"rules,omitempty"`      // rules that make the run fail
	Statuses   []Status        `json:"statuses,omitempty"`   // values that changed between numbers and other statuses
	// alarms: worse before better, those common to many cells first
	Shifts   []Shift  `json:"shifts,omitempty"`
	Tested   int      `json:"tested"`        // series, each of a cell and value, with enough runs for an alarm
	Untested int      `json:"untested"`      // series with too few runs
	New      []string `json:"new,omitempty"` // cells without an earlier run
	// changes since the previous run: versions, settings, hosts
	Subject []string `json:"subject,omitempty"`
}

// Shift is a change of the level of a value in the last scheduled runs: of one cell, or of more than a third of the
// cells in the same runs.
type Shift struct {
	Cell    string          `json:"cell,omitempty"`
	ID      string          `json:"id,omitempty"`
	Cells   []string        `json:"cells,omitempty"` // of a common change: the first cells
	Count   int             `json:"count,omitempty"` // number of the changed cells
	Of      int             `json:"of,omitempty"`    // number of cells with the value
	Value   string          `json:"value"`
	Title   string          `json:"title"`
	Unit    plan.Unit       `json:"unit"`
	Finding compare.Finding `json:"finding"`
	Before  float64         `json:"before,omitempty"`
	After   float64         `json:"after,omitempty"`
	// relative to the level before, infinite from zero; of a common change: the median
	Change float64   `json:"-"`
	P      float64   `json:"p,omitempty"` // corrected for all series and split points in the last runs
	Runs   int       `json:"runs"`        // number of runs with the new level
	Since  string    `json:"since"`       // the first of them
	At     time.Time `json:"at"`
	Causes []string  `json:"causes,omitempty"` // differences of the runs around the change
	Also   []Shift   `json:"also,omitempty"`   // of a common change: the further values that changed in the same runs
}

// Status is a change of the status of values: a verdict, a flag, the reason for a missing number, or "numeric".
type Status struct {
	Cells   []string        `json:"cells"` // the first cells with this change
	Count   int             `json:"count"` // number of these cells
	Values  []string        `json:"values"`
	Finding compare.Finding `json:"finding"`
	history.StatusChange
}

// maxNames limits the named cells of a common change.
const maxNames = 5

// maxListed limits the listed cells with the same change of status.
const maxListed = 20

// Of returns the digest of a run. The history must contain the run.
func Of(m compare.Recorded, past *history.Store) (Digest, error) {
	d := Digest{Run: m.Run.ID, Matrix: m.Run.Name, Started: m.Run.Started, Summary: report.Summary(m.Run, m.Outcomes),
		Problems: report.Failures(m.Run, m.Outcomes), Unfinished: report.NotRun(m.Run, m.Outcomes),
		Rules: slices.DeleteFunc(report.Rulings(m.Run, m.Outcomes), func(r report.Ruling) bool { return !r.Failed() })}
	if err := d.look(m.Run, past); err != nil {
		return Digest{}, fmt.Errorf("read the history of run %s: %w", m.Run.ID, err)
	}
	return d, nil
}

// look finds the changes in the last runs. All values of all cells are one family of tests.
func (d *Digest) look(run plan.Run, past *history.Store) error {
	var all []history.Answer
	for _, cell := range run.Cells {
		answers, err := past.Look(plan.HistoryCell{ID: cell.ID, Matrix: run.Name, Coordinates: cell.Coordinates},
			compare.Usual(), run.Started, history.Depth)
		if err != nil {
			return err
		}
		known := false // from an earlier run
		for _, answer := range answers {
			d.moved(answer)
			points := answer.History.Cells[0].Points
			known = known || len(points) > 0 && points[0].Run != d.Run
		}
		all = append(all, answers...)
		if !known {
			d.New = append(d.New, nameOf(cell))
		}
	}
	trends := history.NewTrends(run.ID, all...)
	numbers := 0
	for _, s := range trends.Series {
		last := s.Points[len(s.Points)-1]
		if last.Run == d.Run {
			for _, text := range last.New {
				d.differs(text)
			}
		}
		if last.Usable > 0 && last.Run == d.Run {
			numbers++
		}
		if s.Newest {
			d.status(s)
		}
		for _, c := range s.Changes {
			if c.Alarm {
				d.Shifts = append(d.Shifts, shiftOf(s, c))
			}
		}
	}
	d.Tested, d.Untested = trends.Tested, max(0, numbers-trends.Tested)
	for _, c := range trends.Common {
		x := newShift(c.Value, stats.Median(c.Shifts), c.Since)
		x.Cells, x.Count, x.Of, x.Runs = c.Cells[:min(len(c.Cells), maxNames)], len(c.Cells), c.Tested, c.Runs
		for _, text := range c.Since.New {
			x.Causes = append(x.Causes, text+" with "+c.Since.Run)
		}
		d.Shifts = append(d.Shifts, x)
	}
	slices.SortStableFunc(d.Shifts, func(a, b Shift) int {
		// worse before better
		return cmp.Or(strings.Compare(string(b.Finding), string(a.Finding)), cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.P, b.P))
	})
	d.mergeShifts()
	d.mergeStatuses()
	return nil
}

// mergeShifts merges the common changes of several values in the same runs into one element, that of the value with the
// most cells.
func (d *Digest) mergeShifts() {
	var all []Shift
	for _, s := range d.Shifts {
		i := slices.IndexFunc(all, func(x Shift) bool {
			return s.Count > 0 && x.Count > 0 && x.Finding == s.Finding && x.Since == s.Since && x.Runs == s.Runs
		})
		if i < 0 {
			all = append(all, s)
			continue
		}
		all[i].Also = append(all[i].Also, s)
	}
	d.Shifts = all
}

// status adds the change of a value's status, if there is one. Values of a cell with the same change share an element.
func (d *Digest) status(s history.Series) {
	c, changed := s.Status(history.Point{Run: d.Run, Started: d.Started})
	if !changed {
		return
	}
	x := Status{Cells: []string{nameOf(plan.Cell{ID: s.Cell.ID, Coordinates: s.Cell.Coordinates})}, Count: 1,
		Values: []string{s.Value}, Finding: compare.Worse, StatusChange: c}
	if c.Status == "" {
		x.Finding = compare.Better
	}
	x.Before, x.Status = cmp.Or(c.Before, "numeric"), cmp.Or(c.Status, "numeric")
	if i := slices.IndexFunc(d.Statuses, func(o Status) bool {
		return slices.Equal(o.Cells, x.Cells) && o.StatusChange == x.StatusChange
	}); i >= 0 {
		d.Statuses[i].Values = append(d.Statuses[i].Values, s.Value)
		return
	}
	d.Statuses = append(d.Statuses, x)
}

// mergeStatuses merges the same change of several cells into one element.
func (d *Digest) mergeStatuses() {
	var all []Status
	for _, s := range d.Statuses {
		i := slices.IndexFunc(all, func(x Status) bool {
			return slices.Equal(x.Values, s.Values) && x.StatusChange == s.StatusChange
		})
		if i < 0 {
			all = append(all, s)
			continue
		}
		all[i].Count++
		if len(all[i].Cells) < maxListed {
			all[i].Cells = append(all[i].Cells, s.Cells...)
		}
	}
	slices.SortStableFunc(all, func(a, b Status) int {
		return cmp.Or(strings.Compare(string(b.Finding), string(a.Finding)), cmp.Compare(b.Count, a.Count))
	})
	d.Statuses = all
}

// moved adds a note if this run was measured from other hosts than the previous run: each set of hosts has its own
// series.
func (d *Digest) moved(a history.Answer) {
	points := a.History.Cells[0].Points
	if i := slices.IndexFunc(points, func(p plan.HistoryPoint) bool { return p.Run == d.Run }); i > 0 &&
		points[i].Environment != points[i-1].Environment {
		hosts := func(p plan.HistoryPoint) string {
			return strings.Join(a.History.Environments[p.Environment].Hosts, ", ")
		}
		d.differs(fmt.Sprintf("hosts: %s → %s; runs on different hosts are not compared",
			hosts(points[i-1]), hosts(points[i])))
	}
}

// differs adds a change of settings, versions or hosts once.
func (d *Digest) differs(text string) {
	if !slices.Contains(d.Subject, text) {
		d.Subject = append(d.Subject, text)
	}
}

func nameOf(c plan.Cell) string { return cmp.Or(c.Name(), "cell "+c.ID) }

func shiftOf(s history.Series, c change.Point) Shift {
	x := newShift(s.Value, c.Shift(), s.Points[c.At])
	x.Cell, x.ID, x.Before, x.After, x.P, x.Causes = s.Cell.Name(), s.Cell.ID, c.Before, c.After, c.P, s.Causes(c.At)
	for _, p := range s.Points[c.At:] {
		if p.Usable > 0 {
			x.Runs++
		}
	}
	return x
}

func newShift(name string, by float64, since history.Point) Shift {
	value, _ := plan.Metrics(nil).ValueNamed(name)
	s := Shift{Value: name, Title: value.Title, Unit: value.Unit, Finding: compare.Worse, Change: by, Since: since.Run,
		At: since.Started}
	if (by > 0) == (value.Better == plan.HigherIsBetter) {
		s.Finding = compare.Better
	}
	return s
}

// Worse returns the number of shifts and statuses that are worse.
func (d Digest) Worse() (n int) {
	for _, r := range d.Remarks() {
		if r.Kind == string(compare.Worse) {
			n++
		}
	}
	return n
}

// maxJSON limits the JSON output in bytes. It is half of the size that a schedule stores for the output of all its
// comparison hooks.
const maxJSON = 32 << 10

// JSON writes the digest as one line of at most 32 KiB, so that a schedule can store it with the run.
func (d Digest) JSON(w io.Writer) error {
	whole := document{Title: d.Title(), Lines: d.lines(), Digest: d}
	for limit := 256; ; limit /= 2 {
		text, err := json.Marshal(whole.cut(limit))
		if err != nil {
			return err
		}
		if len(text) < maxJSON || limit == 0 {
			_, err = w.Write(append(text, '\n'))
			return err
		}
	}
}

// lines returns the lines of all sections, with the section's title as a prefix.
func (d Digest) lines() (all []string) {
	for _, s := range d.sections() {
		for _, l := range s.Lines {
			all = append(all, s.Title+": "+l.Text)
		}
	}
	return all
}

// line formats a shift: "mode=a: publish.rate 10,012 → 8,940 (−11 %), p 0.001, in the last 2 runs".
func (s Shift) line() string {
	if s.Count > 0 {
		text := fmt.Sprintf("%d of %d cells: %s %s", s.Count, s.Of, s.Title, display.Change(s.Change))
		before := s
		for _, x := range s.Also {
			if x.Count == before.Count && x.Of == before.Of {
				text += ", "
			} else {
				text += fmt.Sprintf("; %d of %d cells: ", x.Count, x.Of)
			}
			text += x.Title + " " + display.Change(x.Change)
			before = x
		}
		return text + ", in " + display.Count(s.Runs, "run")
	}
	return fmt.Sprintf("%s: %s %s → %s (%s), p %.2g, in the last %d runs", s.Cell, s.Title,
		report.Format(s.Unit, s.Before), report.Format(s.Unit, s.After), display.Change(s.Change), s.P, s.Runs)
}

// line formats a status: "mode=a: consume.rate: numeric in 36 of 36 runs, backlog since 20260107-020000-nightly (4
// runs)".
func (s Status) line() string {
	where := s.Cells[0]
	if s.Count > 1 {
		where = display.Count(s.Count, "cell")
	}
	return fmt.Sprintf("%s: %s: %s in %d of %s, %s since %s (%s)", where, strings.Join(s.Values, ", "), s.Before,
		s.Earlier, display.Count(s.Of, "run"), s.Status, s.Since, display.Count(s.Runs, "run"))
}

// section is a title with its lines.
type section struct {
	Title string
	Lines []line
	None  string // shown if there are no lines; empty: the section is left out
}

type line struct {
	Text string
	Subs []string
	Mark compare.Finding
}

// Title summarises the digest in one line.
func (d Digest) Title() string {
	var parts []string
	if n := d.Worse(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d worse", n))
	}
	if n := len(d.Problems); n > 0 {
		parts = append(parts, display.Count(n, "problem"))
	}
	if n := len(d.Rules); n > 0 {
		parts = append(parts, display.Count(n, "rule")+" not met")
	}
	if d.Unfinished != "" {
		parts = append(parts, "incomplete")
	}
	if len(parts) == 0 {
		parts = []string{"nothing got worse"}
		if d.Tested == 0 {
			parts = []string{"no earlier runs to compare with"}
		}
	}
	return d.Matrix + ": " + strings.Join(parts, ", ")
}

// sections returns the contents of both text formats, in the order of importance.
func (d Digest) sections() (all []section) {
	shifts := section{Title: "Changes"}
	for _, x := range d.Statuses {
		l := line{Text: string(x.Finding) + ": " + x.line(), Mark: x.Finding}
		if x.Count > 1 {
			l.Subs = names(x.Cells, x.Count)
		}
		shifts.Lines = append(shifts.Lines, l)
	}
	if shifts.None = "No change."; d.Tested == 0 {
		shifts.None = "Too few runs for an alarm."
	}
	for _, s := range d.Shifts {
		l := line{Text: string(s.Finding) + ": " + s.line(), Mark: s.Finding,
			Subs: []string{"since " + s.Since + ", " + s.At.UTC().Format("2006-01-02 15:04 UTC")}}
		l.Subs = append(append(l.Subs, names(s.Cells, s.Count)...), s.Causes...)
		if len(s.Causes) == 0 {
			l.Subs = append(l.Subs, "no recorded setting or version changed")
		}
		shifts.Lines = append(shifts.Lines, l)
	}
	all = append(all, shifts)
	plain := func(title string, texts []string) {
		s := section{Title: title}
		for _, text := range texts {
			s.Lines = append(s.Lines, line{Text: text})
		}
		all = append(all, s)
	}
	if d.Unfinished != "" {
		plain("Incomplete", []string{d.Unfinished + ": the run is still active, or was stopped (resume it with ctl run --resume " +
			d.Run + ")"})
	}
	plain("Problems", d.Problems)
	var rules []string
	for _, r := range d.Rules {
		rules = append(rules, r.String())
	}
	plain("Rules not met", rules)
	plain("Changes since the previous run", d.Subject)
	plain("New cells", d.New)
	return all
}

// names lists the first cells of a change, and the number of the others.
func names(first []string, of int) []string {
	if more := of - len(first); more > 0 {
		return append(slices.Clone(first), fmt.Sprintf("and %d more", more))
	}
	return first
}

// Remarks returns the changes for the worse or better, and the rules that are not met.
func (d Digest) Remarks() (all []Remark) {
	for _, s := range d.Statuses {
		all = append(all, Remark{string(s.Finding), s.line()})
	}
	for _, s := range d.Shifts {
		all = append(all, Remark{string(s.Finding), s.line() + ", since " + s.Since})
	}
	for _, r := range d.Rules {
		all = append(all, Remark{"rule", r.String()})
	}
	return all
}

// about describes the basis of the digest.
func (d Digest) about() string {
	if d.Tested == 0 && d.Untested == 0 {
		return "No alarm is possible: no value of this run is a usable number."
	}
	if d.Tested == 0 {
		return fmt.Sprintf("No alarm is possible yet: %d series have too few runs.", d.Untested)
	}
	text := fmt.Sprintf("Alarms are possible in %d series", d.Tested)
	if d.Untested > 0 {
		text += fmt.Sprintf("; %d more have too few runs", d.Untested)
	}
	return text + ". With 90 earlier runs and independent normal noise, at most 5 % of scheduled runs have a false alarm " +
		"(other conditions: docs/concepts/statistics.md)."
}

// Markdown writes the digest for chats and mails.
func (d Digest) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nRun `%s`, %s. %s.\n", report.MarkdownText(d.Title()), d.Run,
		d.Started.UTC().Format("2006-01-02 15:04 UTC"), report.MarkdownText(d.Summary))
	for _, s := range d.sections() {
		if len(s.Lines) == 0 && s.None == "" {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n", report.MarkdownText(s.Title))
		if len(s.Lines) == 0 {
			b.WriteString(s.None + "\n")
		}
		for _, l := range s.Lines {
			fmt.Fprintf(&b, "- %s\n", report.MarkdownText(l.Text))
			for _, sub := range l.Subs {
				fmt.Fprintf(&b, "  - %s\n", report.MarkdownText(sub))
			}
		}
	}
	fmt.Fprintf(&b, "\n%s\n", d.about())
	_, err := io.WriteString(w, b.String())
	return err
}

//go:embed digest.html
var source string

var sheet = template.Must(template.New("digest").Parse(source))

// HTML writes the digest as one file without external resources and scripts.
func (d Digest) HTML(w io.Writer) error {
	return sheet.Execute(w, map[string]any{"Title": d.Title(), "Digest": d, "Sections": d.sections(),
		"About": d.about(), "At": d.Started.UTC().Format("2006-01-02 15:04 UTC")})
}

// document is the JSON output. Long lists are shortened, and More has the numbers of omitted elements.
type document struct {
	Title string   `json:"title"`
	Lines []string `json:"lines,omitempty"` // the text output, in the order of its importance
	Digest
	More map[string]int `json:"more,omitempty"` // by the name of the list
}

// cut returns a copy with at most that many elements per list.
func (t document) cut(limit int) document {
	t.More = map[string]int{}
	t.Lines = first(t.Lines, limit, t.More, "lines")
	t.Problems = first(t.Problems, limit, t.More, "problems")
	t.Rules = first(t.Rules, limit, t.More, "rules")
	t.Statuses = first(t.Statuses, limit, t.More, "statuses")
	t.Shifts = first(t.Shifts, limit, t.More, "shifts")
	t.New = first(t.New, limit, t.More, "new")
	t.Subject = first(t.Subject, limit, t.More, "subject")
	return t
}

func first[T any](all []T, limit int, more map[string]int, name string) []T {
	if len(all) <= limit {
		return all
	}
	more[name] = len(all) - limit
	return all[:limit]
}

// Remark is an annotation for dashboards. Kind is "worse", "better" or "rule".
type Remark struct{ Kind, Text string }
