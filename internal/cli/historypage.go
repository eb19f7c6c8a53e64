package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
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
	answer plan.HistoryAnswer
}

func (p *historyPage) info() plan.ValueInfo {
	info, _ := p.answer.Metrics.ValueNamed(p.value)
	info.Name = p.value
	return info
}

func (p *historyPage) text() error {
	var err error
	trends := p.trends()
	switch {
	case p.value == "":
		err = p.cells()
	case len(trends.Series) == 0:
		p.print(0, fmt.Sprintf("no run has %s for these cells", p.value))
	case len(p.answer.Cells) == 1:
		for i, s := range trends.Series {
			if i > 0 {
				fmt.Fprintln(p.out)
			}
			if err = p.series(s, trends); err != nil {
				break
			}
		}
	default:
		err = p.overview(trends)
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

func (p *historyPage) trends() history.Trends {
	return history.NewTrends("", history.Answer{Value: p.value, HistoryAnswer: p.answer})
}

// print writes a line, wrapped at the width.
func (p *historyPage) print(indent int, text string) {
	fmt.Fprintln(p.out, display.Hang(text, p.width, indent))
}

// cells lists the cells of the history.
func (p *historyPage) cells() error {
	var rows [][]string
	for _, c := range p.answer.Cells {
		rows = append(rows, []string{c.ID, display.Clean(c.Matrix), display.Clean(c.Name()), day(c.First), day(c.Last)})
	}
	return display.NewTable([]string{"CELL", "MATRIX", "AXES", "FIRST", "LAST"}, rows).Write(p.out, p.width)
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// overview prints one line per series.
func (p *historyPage) overview(trends history.Trends) error {
	info := p.info()
	p.print(0, p.heading())
	fmt.Fprintln(p.out)
	var rows [][]string
	for _, c := range trends.Series {
		series := c.Numbers()
		last, since := "–", "–"
		if n := len(series); n > 0 {
			last = report.Show(info, plan.Value{Number: series[n-1]})
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
		if where := display.Clean(trends.Distinction(c)); where != "" {
			name += ", " + where
		}
		rows = append(rows, []string{c.Cell.ID, name, strconv.Itoa(len(c.Points)), spark(series, 24), last, since})
	}
	if err := p.table([]string{"CELL", "AXES", "RUNS", "OVER TIME", "LAST", "CHANGED"}, rows, 0, 2); err != nil {
		return err
	}
	for _, c := range trends.Common {
		fmt.Fprintln(p.out)
		p.print(0, fmt.Sprintf("%s in %d of %d cells since %s (%s, %s)", display.Change(stats.Median(c.Shifts)),
			len(c.Cells), c.Tested, day(c.Since.Started), c.Since.Run, display.Count(c.Runs, "run")))
	}
	return nil
}

func (p *historyPage) heading() string {
	info := p.info()
	if info.Title == "" {
		return p.value
	}
	return fmt.Sprintf("%s (%s)", p.value, info.Title)
}

// series prints the table of one series, with its changes.
func (p *historyPage) series(c history.Series, trends history.Trends) error {
	info, series := p.info(), c.Numbers()
	p.print(2, fmt.Sprintf("%s of %s, matrix %s", p.heading(),
		strings.TrimSpace(c.Cell.ID+"  "+display.Clean(c.Cell.Name())), display.Clean(c.Cell.Matrix)))
	if where := display.Clean(trends.Distinction(c)); where != "" {
		p.print(2, "separate series: "+where)
	}
	room := 60
	if p.width > 0 {
		room = min(room, p.width)
	}
	if len(series) > 1 {
		fmt.Fprintf(p.out, "%s\n", spark(series, room))
	}
	marks := map[int]string{}
	for _, x := range c.Changes {
		p.print(2, p.changed(c, x))
		marks[x.At] = "◂ " + display.Change(x.Shift())
	}
	fmt.Fprintln(p.out)
	var rows [][]string
	var notes []string
	for i, n := range c.Points {
		var more []string
		if marks[i] != "" {
			more = append(more, marks[i])
		}
		for _, x := range n.New {
			if p.narrow() {
				x, _, _ = strings.Cut(x, ":")
			}
			more = append(more, display.Clean(x))
		}
		number, spread := "–", ""
		if n.Usable > 0 {
			number = report.Show(info, plan.Value{Number: n.Number})
			spread = span(n, info)
		}
		doubt := statuses(n)
		if p.narrow() && doubt != "" { // STATUS is left out, but its information must not be
			number += " ?"
			notes = append(notes, "? "+day(n.Started)+": "+doubt)
		}
		rows = append(rows, []string{day(n.Started), n.Run, number, spread, doubt, strings.Join(more, "; ")})
	}
	err := p.table([]string{"STARTED (UTC)", "RUN", "MEDIAN", "REPETITIONS", "STATUS", "NEW"}, rows, 1, 3, 4)
	for _, note := range notes {
		p.print(2, note)
	}
	return err
}

// narrow reports whether the terminal has no room for all columns.
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
	pick := func(row []string) (some []string) {
		for _, i := range keep {
			some = append(some, row[i])
		}
		return some
	}
	some := make([][]string, len(rows))
	for i, row := range rows {
		some[i] = pick(row)
	}
	return display.NewTable(pick(head), some).Write(p.out, p.width)
}

func (p *historyPage) changed(c history.Series, x change.Point) string {
	info, since := p.info(), c.Points[x.At]
	text := fmt.Sprintf("%s since %s (%s): %s → %s, p = %.2g", display.Change(x.Shift()), day(since.Started), since.Run,
		report.Show(info, plan.Value{Number: x.Before}), report.Show(info, plan.Value{Number: x.After}), x.P)
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
func span(n history.Point, info plan.ValueInfo) string {
	if n.Usable < 2 {
		return ""
	}
	least, most := math.Inf(1), math.Inf(-1)
	for _, r := range n.Repetitions {
		if r.Usable() {
			least, most = min(least, r.Value.Number), max(most, r.Value.Number)
		}
	}
	return fmt.Sprintf("%d: %s … %s", n.Usable, report.Show(info, plan.Value{Number: least}),
		report.Show(info, plan.Value{Number: most}))
}

// statuses lists the verdicts other than valid, the flags, and the reasons for missing numbers.
func statuses(n history.Point) string {
	var words []string
	seen := map[string]bool{}
	add := func(word string) {
		if word != "" && !seen[word] {
			words, seen[word] = append(words, word), true
		}
	}
	for _, r := range n.Repetitions {
		if r.Verdict != plan.Valid {
			add(string(r.Verdict))
		}
		for _, f := range r.Value.Flags {
			add(string(f))
		}
		add(r.Value.NA)
	}
	return strings.Join(words, ", ")
}

// spark draws a series as bars, at most one per column. A bar of a longer series shows the median of several values.
// The lowest bar is the minimum and the highest the maximum.
func spark(series []float64, columns int) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	if len(series) == 0 || columns < 1 {
		return ""
	}
	columns = min(columns, len(series))
	var points []float64
	least, most := math.Inf(1), math.Inf(-1)
	for i := range columns {
		x := stats.Median(series[i*len(series)/columns : (i+1)*len(series)/columns])
		points = append(points, x)
		least, most = min(least, x), max(most, x)
	}
	out := make([]rune, columns)
	for i, x := range points {
		at := len(bars) / 2
		if most > least {
			at = min(len(bars)-1, int((x-least)/(most-least)*float64(len(bars))))
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
	since := p.changes()
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
				p.value, number,
				strconv.FormatFloat(x.Value.Bound, 'g', -1, 64), x.Value.NA, strings.Join(flags, " "),
				string(x.Verdict), x.Subject, x.Environment,
				strings.Join(p.answer.Environments[x.Environment].Hosts, " "), x.Version, since[c.ID+" "+x.Run]})
		}
	}
	w.Flush() // Flush reports no error itself; Error does
	return w.Error()
}

// changes returns the relative shifts by cell and first run of the new level.
func (p *historyPage) changes() map[string]string {
	all := map[string]string{}
	for _, s := range p.trends().Series {
		for _, x := range s.Changes {
			all[s.Cell.ID+" "+s.Points[x.At].Run] = strconv.FormatFloat(x.Shift(), 'g', 4, 64)
		}
	}
	return all
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
	trends := p.trends()
	for _, s := range trends.Series {
		for _, x := range s.Changes {
			changes = append(changes, jsonChange{s.Cell.ID, s.Environment.Hosts, s.Points[x.At].Run, x.Before, x.After,
				x.P, x.Alarm, s.Causes(x.At)})
		}
	}
	for _, c := range trends.Common {
		common = append(common, jsonCommon{c.Cells, c.Tested, c.Since.Run, c.Runs, stats.Median(c.Shifts)})
	}
	return printJSON(p.out, struct {
		Value string `json:"value,omitempty"`
		plan.HistoryAnswer
		Changes []jsonChange `json:"changes"`
		Common  []jsonCommon `json:"common"`
	}{p.value, p.answer, changes, common})
}
