package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/runview"
	"example.org/lockstep/lockstep/internal/terminal"
	"example.org/lockstep/lockstep/internal/wire"
)

// view is the state of a run that live metrics show. Frames depend only on its entries and their times.
type view struct{ run *runview.State }

func newView(s wire.Submission) view {
	v := view{runview.New(s.Run)}
	v.run.AddDone(s.Done, s.Numbers)
	return v
}

// heading returns the line that announces the run.
func (v *view) heading() string {
	return fmt.Sprintf("%s: %s%s, about %v, run %s", v.run.Run.Name, display.AtMost(v.run.Rounds.Open()),
		display.Count(v.run.Pace.Tasks(), "task"), v.run.Pace.Planned().Round(time.Second), v.run.Run.ID)
}

// phase returns the phase of an attempt as text, and the elapsed part of warm-up and measurement, from 0 to 1.
func phase(a *runview.Attempt, now time.Time) (text string, part float64) {
	w := a.Task.Cell.Workload
	warmup, measure := w.Warmup.D(), w.Measure.D()
	p, since := a.Phase(now)
	over := max(0, float64(warmup+since)/float64(warmup+measure))
	switch p {
	case runview.UntilSteady:
		return "warm-up, until the load is steady", 0
	case runview.WarmUp:
		return fmt.Sprintf("warm-up, %v to go", (-since).Round(time.Second)), over
	case runview.Measuring:
		if slices.ContainsFunc(w.Parts(), func(p plan.Workload) bool { return p.Publishers.Count > 0 }) {
			return fmt.Sprintf("measuring, %v, until all messages are sent", since.Truncate(time.Second)), over
		}
		return fmt.Sprintf("measuring, %v of %v", since.Truncate(time.Second), measure), over
	case runview.Draining:
		return "draining", 1
	case runview.Abandoned:
		return "its controller was lost; its agents stop it", 0
	}
	return "connecting", 0
}

// nameOf returns the cell and repetition of an attempt and, of a search, its step.
func nameOf(a *runview.Attempt) string {
	parts := []string{a.Task.Cell.Name()}
	if a.Task.Repetition > 1 {
		parts = append(parts, fmt.Sprintf("repetition %d", a.Task.Repetition))
	}
	if a.Started.Detail != "" {
		parts = append(parts, a.Started.Detail)
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// Widths of frames, in columns.
const (
	minTable = 60 // below it, each metric has a line of its own
	maxBar   = 30
)

// frame returns the lines of the live view, at most columns wide.
func (v *view) frame(columns int, now time.Time, paint terminal.Painter) []string {
	if v.run.Run.ID == "" {
		return []string{"waiting for the run to start"}
	}
	size, gap, progress := min(maxBar, columns-45), "  ", ""
	narrow := columns < minTable
	if narrow {
		size, gap, progress = max(3, columns/4), " ", v.shortProgress(now)
	} else {
		progress = v.progressText(now, paint)
	}
	lines := []string{"", bar("run ", v.run.Part(now), size, paint) + gap + progress}
	a := v.run.Attempt
	if a == nil {
		return append(lines, v.idle(paint))
	}
	text, part := phase(a, now)
	if !narrow {
		text += agents(a, paint)
	}
	lines = append(lines, bar("cell", part, size, paint)+gap+text)
	if name := nameOf(a); name != "" {
		lines = append(lines, paint.Paint(terminal.Bold, display.Clean(name)))
	}
	live := a.Newest()
	if live == nil {
		return lines
	}
	if !narrow {
		return append(lines, table(live.Flows, columns, paint)...)
	}
	for _, f := range live.Flows {
		lines = append(lines, flowLines(f, paint)...)
	}
	return lines
}

// flowLines returns one line per metric of a flow.
func flowLines(f runview.Flow, paint terminal.Painter) (lines []string) {
	if f.Group != "" {
		lines = append(lines, display.Clean(f.Group))
	}
	cells := cells(f)
	head, text := 0, 0
	for i, c := range cells {
		head, text = max(head, len(metricColumns[i].of+" "+metricColumns[i].what)), max(text, display.Width(c.text))
	}
	for i, c := range cells {
		lines = append(lines, " "+display.Pad(metricColumns[i].of+" "+metricColumns[i].what, head, true)+" "+
			c.paint(display.Pad(c.text, text, false), paint))
	}
	return lines
}

// idle returns the reason why no task is in flight.
func (v *view) idle(paint terminal.Painter) string {
	switch {
	case v.run.Note != "":
		return paint.Paint(terminal.Yellow, display.Clean(v.run.Note))
	case v.run.Pace.Tasks() == 0:
		return "all tasks have ended"
	}
	return "between tasks"
}

func bar(name string, part float64, columns int, paint terminal.Painter) string {
	full, rest := terminal.Bar(part, columns)
	return name + " " + paint.Paint(terminal.Cyan, full) + paint.Paint(terminal.Faint, rest)
}

// progressText returns the progress of the run as text.
func (v *view) progressText(now time.Time, paint terminal.Painter) string {
	done, of := v.run.Pace.All()
	text := fmt.Sprintf("%d of %s%d tasks", done, display.AtMost(v.run.Rounds.Open()), of)
	sep := ": "
	for _, x := range []struct {
		verdict plan.Verdict
		style   terminal.Style
	}{{plan.Valid, terminal.Green}, {plan.Invalid, terminal.Red}, {plan.Unknown, terminal.Red}} {
		if n := v.run.Count(x.verdict); n > 0 {
			text += sep + paint.Paint(x.style, fmt.Sprintf("%d %s", n, x.verdict.Word()))
			sep = ", "
		}
	}
	if v.run.Pace.Tasks() > 0 {
		text += "; " + v.remaining(now)
	}
	return text
}

// shortProgress is progressText for terminals with few columns.
func (v *view) shortProgress(now time.Time) string {
	done, of := v.run.Pace.All()
	text := fmt.Sprintf("%d/%s%d", done, bound(v.run.Rounds.Open()), of)
	if v.run.Pace.Tasks() > 0 {
		text += ", " + v.remaining(now)
	}
	return text
}

// remaining returns the estimated time left as text.
func (v *view) remaining(now time.Time) string {
	left := v.run.Left(now).Round(time.Second)
	if left == 0 {
		return "nearly done"
	}
	return fmt.Sprintf("about %v left", left)
}

// agents returns how many of the attempt's agents have reported the newest second.
func agents(a *runview.Attempt, paint terminal.Painter) string {
	live := a.Newest()
	if live == nil {
		return fmt.Sprintf("; %d agents", len(a.Started.Agents))
	}
	text := fmt.Sprintf("%d of %d agents", live.Agents, live.Of)
	if live.Agents < live.Of {
		text = paint.Paint(terminal.Yellow, text)
	}
	return "; " + text
}

// metricColumns are the columns of live metrics, with the headings of tables. If a terminal is too narrow for all, the
// columns with the highest rank are left out first.
var metricColumns = []struct {
	of, what string
	rank     int
}{
	{"Publish", "msg/s", 0}, {"Consume", "msg/s", 1}, {"Lag", "msg", 2}, {"Publish", "p50", 6}, {"Publish", "p99", 4},
	{"End-to-end", "p50", 5}, {"End-to-end", "p99", 3},
}

// cells returns the texts of a flow, in the order of metricColumns. A dash is shown for a metric that is not known yet
// or does not apply.
func cells(f runview.Flow) []metric {
	out := make([]metric, len(metricColumns))
	for i := range out {
		out[i] = metric{"–", terminal.Faint}
	}
	if !f.Known {
		return out
	}
	out[0] = metric{text: display.Number(f.PublishRate)}
	if f.Publish.Samples > 0 {
		out[3] = metric{text: report.Latency(f.Publish.P50.Seconds())}
		out[4] = metric{text: report.Latency(f.Publish.P99.Seconds())}
	}
	if !f.Consumes {
		return out
	}
	out[1], out[2] = metric{text: display.Number(f.ConsumeRate)}, metric{text: display.Decimals(f.Lag, 0)}
	switch {
	case f.Behind: // then latencies only measure the length of the queue
		out[2].style = terminal.Yellow
		out[5] = metric{string(plan.Backlog), terminal.Yellow}
		out[6] = out[5]
	case f.EndToEnd.Samples > 0:
		out[5] = metric{text: report.Latency(f.EndToEnd.P50.Seconds())}
		out[6] = metric{text: report.Latency(f.EndToEnd.P99.Seconds())}
	}
	return out
}

// table has one row per flow. Columns that do not fit are left out, in the order of their rank.
func table(flows []runview.Flow, columns int, paint terminal.Painter) []string {
	rows := make([][]metric, len(flows))
	names := 0
	for i, f := range flows {
		rows[i] = cells(f)
		names = max(names, min(display.Width(display.Clean(f.Group)), columns/3))
	}
	widths := make([]int, len(metricColumns))
	for i, x := range metricColumns {
		widths[i] = max(len(x.of), len(x.what), len("999,999"))
		for _, row := range rows {
			widths[i] = max(widths[i], display.Width(row[i].text))
		}
	}
	shown := fitting(widths, names, columns)
	line := func(name string, text func(i int) string) string {
		parts := []string{display.Pad(display.Cut(display.Clean(name), names), names, true)}
		for _, i := range shown {
			parts = append(parts, text(i))
		}
		return strings.TrimPrefix(strings.Join(parts, "  "), "  ")
	}
	lines := []string{
		paint.Paint(terminal.Faint, line("", func(i int) string { return display.Pad(metricColumns[i].of, widths[i], false) })),
		paint.Paint(terminal.Faint, line("", func(i int) string { return display.Pad(metricColumns[i].what, widths[i], false) })),
	}
	for n, f := range flows {
		lines = append(lines, line(f.Group, func(i int) string {
			return rows[n][i].paint(display.Pad(rows[n][i].text, widths[i], false), paint)
		}))
	}
	legend := fmt.Sprintf("rates: last full second; latencies: last %d s", runview.RecentSeconds)
	if !slices.ContainsFunc(flows, func(f runview.Flow) bool { return f.Known }) {
		legend = "waiting for the first full second of metrics"
	}
	return append(lines, paint.Paint(terminal.Faint, legend))
}

// fitting returns the indices of the columns that fit beside the names.
func fitting(widths []int, names, columns int) []int {
	var shown []int
	for i := range metricColumns {
		shown = append(shown, i)
	}
	for {
		total := names
		for _, i := range shown {
			total += 2 + widths[i]
		}
		if total < columns || len(shown) == 1 {
			return shown
		}
		cheapest := slices.MaxFunc(shown, func(a, b int) int { return metricColumns[a].rank - metricColumns[b].rank })
		shown = slices.DeleteFunc(shown, func(i int) bool { return i == cheapest })
	}
}

// metric is the text of a cell in such a column, with its style.
type metric struct {
	text  string
	style terminal.Style
}

func (f metric) paint(text string, p terminal.Painter) string {
	if f.style == "" {
		return text
	}
	return p.Paint(f.style, text)
}
