package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/history/change"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/stats"
)

// historyPage writes the answer of a history query.
type historyPage struct {
	out    io.Writer
	width  int // columns; 0: no limit
	value  string
	info   plan.ValueInfo // of value
	answer plan.HistoryAnswer
	trends history.Trends
}

func newHistoryPage(out io.Writer, width int, value string, answer plan.HistoryAnswer) *historyPage {
	info, _ := answer.Metrics.ValueNamed(value)
	info.Name = value
	return &historyPage{out: out, width: width, value: value, info: info, answer: answer,
		trends: history.NewTrends("", history.Answer{Value: value, History: answer})}
}

func (p *historyPage) text() error {
	var err error
	switch {
	case p.value == "":
		err = p.cells()
	case len(p.trends.Series) == 0:
		p.print(0, fmt.Sprintf("no run has %s for these cells", p.value))
	case len(p.answer.Cells) == 1:
		for i, s := range p.trends.Series {
			if i > 0 {
				fmt.Fprintln(p.out)
			}
			if err = p.series(s); err != nil {
				break
			}
		}
	default:
		err = p.overview()
	}
	if err != nil {
		return err
	}
	if n := p.answer.MoreCells; n > 0 {
		fmt.Fprintln(p.out)
		p.print(0, fmt.Sprintf("and %s: select fewer cells", display.Count(n, "more cell")))
	}
	if n := p.answer.MorePoints; n > 0 {
		fmt.Fprintln(p.out)
		p.print(0, fmt.Sprintf("%s omitted: select one cell to see more", display.Count(n, "older repetition")))
	}
	return nil
}

// print writes a line, wrapped at the width.
func (p *historyPage) print(indent int, text string) {
	fmt.Fprintln(p.out, display.Hang(text, p.width, indent))
}

// cells lists the cells of the history.
func (p *historyPage) cells() error {
	var rows [][]string
	for _, c := range p.answer.Cells {
		rows = append(rows, []string{c.ID, c.Matrix, c.Name(), day(c.First), day(c.Last)})
	}
	return display.NewTable([]string{"CELL", "MATRIX", "AXES", "FIRST", "LAST"}, rows).Write(p.out, p.width)
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// overview prints one line per series.
func (p *historyPage) overview() error {
	p.print(0, p.heading())
	fmt.Fprintln(p.out)
	var rows [][]string
	for _, c := range p.trends.Series {
		series := c.Numbers()
		last, since := "–", "–"
		if n := len(series); n > 0 {
			last = p.show(series[n-1])
		}
		if n := len(c.Changes); n > 0 {
			x := c.Changes[n-1]
			since = fmt.Sprintf("%s since %s", display.Change(x.Shift()),
				day(c.Points[x.At].Started)[:len(time.DateOnly)])
			if x.Alarm {
				since += ", alarm"
			}
		}
		name := display.Clean(c.Cell.Name())
		if where := display.Clean(p.trends.Distinction(c)); where != "" {
			name += ", " + where
		}
		rows = append(rows, []string{c.Cell.ID, name, strconv.Itoa(len(c.Points)), spark(series, 24), last, since})
	}
	if err := p.table([]string{"CELL", "AXES", "RUNS", "OVER TIME", "LAST", "CHANGED"}, rows, 0, 2); err != nil {
		return err
	}
	for _, c := range p.trends.Common {
		fmt.Fprintln(p.out)
		p.print(0, fmt.Sprintf("%s in %d of %d cells since %s (%s, %s)", display.Change(stats.Median(c.Shifts)),
			len(c.Cells), c.Tested, day(c.Since.Started), c.Since.Run, display.Count(c.Runs, "run")))
	}
	return nil
}

func (p *historyPage) heading() string {
	if p.info.Title != "" {
		return fmt.Sprintf("%s (%s)", p.value, p.info.Title)
	}
	return p.value
}

func (p *historyPage) show(number float64) string {
	return report.Show(p.info, plan.Value{Number: number})
}

// series prints the table of one series, with its changes.
func (p *historyPage) series(c history.Series) error {
	series := c.Numbers()
	p.print(2, fmt.Sprintf("%s of %s, matrix %s", p.heading(),
		strings.TrimSpace(c.Cell.ID+"  "+display.Clean(c.Cell.Name())), display.Clean(c.Cell.Matrix)))
	if where := display.Clean(p.trends.Distinction(c)); where != "" {
		p.print(2, "separate series: "+where)
	}
	if len(series) > 1 {
		columns := 60
		if p.width > 0 {
			columns = min(columns, p.width)
		}
		fmt.Fprintln(p.out, spark(series, columns))
	}
	shifts := map[int]string{} // by index of the first point of the new level
	for _, x := range c.Changes {
		p.print(2, p.changed(c, x))
		shifts[x.At] = "◂ " + display.Change(x.Shift())
	}
	fmt.Fprintln(p.out)
	var rows [][]string
	var notes []string
	for i, n := range c.Points {
		var more []string
		if shifts[i] != "" {
			more = append(more, shifts[i])
		}
		for _, x := range n.New {
			if p.narrow() {
				x, _, _ = strings.Cut(x, ":")
			}
			more = append(more, display.Clean(x))
		}
		number, spread := "–", ""
		if n.Usable > 0 {
			number, spread = p.show(n.Number), p.span(n)
		}
		status := statuses(n)
		if p.narrow() && status != "" { // STATUS is left out, but its information must not be
			number += " ?"
			notes = append(notes, "? "+day(n.Started)+": "+status)
		}
		rows = append(rows, []string{day(n.Started), n.Run, number, spread, status, strings.Join(more, "; ")})
	}
	err := p.table([]string{"STARTED (UTC)", "RUN", "MEDIAN", "REPETITIONS", "STATUS", "CHANGE"}, rows, 1, 3, 4)
	for _, note := range notes {
		p.print(2, note)
	}
	return err
}

// narrow reports whether the terminal is too narrow for all columns.
func (p *historyPage) narrow() bool { return p.width > 0 && p.width < 110 }

// table prints a table without its empty columns and, on a narrow terminal, without the columns with the indices spare.
func (p *historyPage) table(head []string, rows [][]string, spare ...int) error {
	var keep []int
	for i := range head {
		filled := slices.ContainsFunc(rows, func(row []string) bool { return row[i] != "" })
		if filled && !(p.narrow() && slices.Contains(spare, i)) {
			keep = append(keep, i)
		}
	}
	pick := func(row []string) (kept []string) {
		for _, i := range keep {
			kept = append(kept, row[i])
		}
		return kept
	}
	kept := make([][]string, len(rows))
	for i, row := range rows {
		kept[i] = pick(row)
	}
	return display.NewTable(pick(head), kept).Write(p.out, p.width)
}

func (p *historyPage) changed(c history.Series, x change.Point) string {
	since := c.Points[x.At]
	text := fmt.Sprintf("%s since %s (%s): %s → %s, p = %.2g", display.Change(x.Shift()), day(since.Started), since.Run,
		p.show(x.Before), p.show(x.After), x.P)
	if x.Alarm {
		text = "alarm: " + text
	}
	if causes := c.Causes(x.At); len(causes) > 0 {
		text += "; other changes: " + strings.Join(causes, "; ")
	} else {
		text += "; no recorded setting or version changed"
	}
	return display.Clean(text)
}

// span returns the minimum and maximum of a run's usable repetitions.
func (p *historyPage) span(n history.Point) string {
	if n.Usable < 2 {
		return ""
	}
	var numbers []float64
	for _, r := range n.Repetitions {
		if r.Usable() {
			numbers = append(numbers, r.Value.Number)
		}
	}
	return fmt.Sprintf("%d: %s … %s", n.Usable, p.show(slices.Min(numbers)), p.show(slices.Max(numbers)))
}

// statuses lists the verdicts other than valid, the flags, and the reasons for missing numbers.
func statuses(n history.Point) string {
	var all []string
	add := func(text string) {
		if text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	for _, r := range n.Repetitions {
		if r.Verdict != plan.Valid {
			add(r.Verdict.Word())
		}
		for _, f := range r.Value.Flags {
			add(string(f))
		}
		add(r.Value.NA)
	}
	return strings.Join(all, ", ")
}

// spark draws a series as bars, at most one per column. A bar of a longer series shows the median of several values.
// The lowest bar is the minimum and the highest the maximum.
func spark(series []float64, columns int) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	if len(series) == 0 || columns < 1 {
		return ""
	}
	columns = min(columns, len(series))
	points := make([]float64, columns)
	for i := range points {
		points[i] = stats.Median(series[i*len(series)/columns : (i+1)*len(series)/columns])
	}
	low, high := slices.Min(points), slices.Max(points)
	out := make([]rune, columns)
	for i, x := range points {
		at := len(bars) / 2
		if high > low {
			at = min(len(bars)-1, int((x-low)/(high-low)*float64(len(bars))))
		}
		out[i] = bars[at]
	}
	return string(out)
}

// csv writes one line per repetition, with unrounded numbers.
func (p *historyPage) csv() error {
	w := csv.NewWriter(p.out)
	_ = w.Write([]string{"cell", "matrix", "axes", "run", "begin", "repetition", "value", "number", "bound", "na",
		"flags", "verdict", "subject", "environment", "hosts", "lockstep", "change"})
	shifts := map[string]string{} // relative, by cell and first run of the new level
	for _, s := range p.trends.Series {
		for _, x := range s.Changes {
			shifts[s.Cell.ID+" "+s.Points[x.At].Run] = strconv.FormatFloat(x.Shift(), 'g', 4, 64)
		}
	}
	for _, c := range p.answer.Cells {
		for _, x := range c.Points {
			number := strconv.FormatFloat(x.Value.Number, 'g', -1, 64)
			if x.Value.NA != "" {
				number = ""
			}
			var flags []string
			for _, f := range x.Value.Flags {
				flags = append(flags, string(f))
			}
			_ = w.Write([]string{c.ID, c.Matrix, c.Name(), x.Run, x.At.Format(time.RFC3339), strconv.Itoa(x.Repetition),
				p.value, number, strconv.FormatFloat(x.Value.Bound, 'g', -1, 64), x.Value.NA, strings.Join(flags, " "),
				string(x.Verdict), x.Subject, x.Environment,
				strings.Join(p.answer.Environments[x.Environment].Hosts, " "), x.Version, shifts[c.ID+" "+x.Run]})
		}
	}
	w.Flush() // Flush reports no error itself; Error does
	return w.Error()
}

// jsonChange is a change point in the JSON output.
type jsonChange struct {
	Cell   string   `json:"cell"`
	Hosts  []string `json:"hosts"`
	Since  string   `json:"since"` // the first run of the new level
	Before float64  `json:"before"`
	After  float64  `json:"after"`
	P      float64  `json:"p"`
	Alarm  bool     `json:"alarm,omitempty"`
	Causes []string `json:"causes,omitempty"`
}

// jsonCommon is a change of more than a third of the cells in the same runs.
type jsonCommon struct {
	Cells  []string `json:"cells"`
	Of     int      `json:"of"`
	Since  string   `json:"since"`
	Runs   int      `json:"runs"`
	Change float64  `json:"change"` // median of the relative shifts
}

func (p *historyPage) json() error {
	changes, common := []jsonChange{}, []jsonCommon{}
	for _, s := range p.trends.Series {
		for _, x := range s.Changes {
			changes = append(changes, jsonChange{s.Cell.ID, s.Environment.Hosts, s.Points[x.At].Run, x.Before, x.After,
				x.P, x.Alarm, s.Causes(x.At)})
		}
	}
	for _, c := range p.trends.Common {
		common = append(common, jsonCommon{c.Cells, c.Tested, c.Since.Run, c.Runs, stats.Median(c.Shifts)})
	}
	return printJSON(p.out, struct {
		Value string `json:"value,omitempty"`
		plan.HistoryAnswer
		Changes []jsonChange `json:"changes"`
		Common  []jsonCommon `json:"common"`
	}{p.value, p.answer, changes, common})
}
