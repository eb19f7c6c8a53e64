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

	"lockstep/internal/history"
	"lockstep/internal/plan"
	"lockstep/internal/report"
	"lockstep/internal/stats"
	"lockstep/internal/terminal"
)

// historyPage writes what a history has answered.
type historyPage struct {
	out    io.Writer
	width  int // columns; 0: as wide as it likes
	value  string
	answer plan.HistoryAnswer
}

func (p *historyPage) info() plan.ValueInfo {
	_, name := plan.InGroup(p.value)
	for _, v := range plan.Values() {
		if v.Name == name {
			v.Name = p.value
			return v
		}
	}
	return plan.ValueInfo{Name: p.value}
}

func (p *historyPage) text() error {
	var err error
	courses := history.Courses(p.answer)
	switch {
	case p.value == "":
		err = p.cells()
	case len(courses) == 0:
		p.say(0, fmt.Sprintf("no run has %s of these cells", p.value))
	case len(p.answer.Cells) == 1:
		for i, c := range courses {
			if i > 0 {
				fmt.Fprintln(p.out)
			}
			if err = p.course(c, courses); err != nil {
				break
			}
		}
	default:
		err = p.overview(courses)
	}
	if err != nil {
		return err
	}
	if n := p.answer.MoreCells; n > 0 {
		fmt.Fprintln(p.out)
		p.say(0, fmt.Sprintf("and %s: name fewer of them", several(n, "more cell")))
	}
	if n := p.answer.MorePoints; n > 0 {
		fmt.Fprintln(p.out)
		p.say(0, fmt.Sprintf("%s left out: ask for one cell to see more", several(n, "older value")))
	}
	return nil
}

// say writes a line, wrapped where it is too wide.
func (p *historyPage) say(indent int, text string) {
	fmt.Fprintln(p.out, terminal.Hang(text, p.width, indent))
}

// cells lists the cells that there are.
func (p *historyPage) cells() error {
	var rows [][]string
	for _, c := range p.answer.Cells {
		rows = append(rows, []string{c.ID, terminal.Clean(c.Matrix), terminal.Clean(c.Name()), day(c.First), day(c.Last)})
	}
	return tabulateIn(p.width, p.out, []string{"CELL", "MATRIX", "AXES", "FIRST", "LAST"}, rows)
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// overview is a line for each course.
func (p *historyPage) overview(courses []history.Course) error {
	info := p.info()
	p.say(0, p.heading())
	fmt.Fprintln(p.out)
	var rows [][]string
	for _, c := range courses {
		series := c.Series()
		last, since := "–", "–"
		if n := len(series); n > 0 {
			last = report.Show(info, plan.Value{Number: series[n-1]})
		}
		if n := len(c.Changes); n > 0 {
			since = fmt.Sprintf("%s since %s", percent(c.Changes[n-1].Shift()), day(c.Nights[c.At[n-1]].Started)[:len(time.DateOnly)])
		}
		name := terminal.Clean(c.Cell.Name())
		if where := p.where(c, courses); where != "" {
			name += ", " + where
		}
		rows = append(rows, []string{c.Cell.ID, name, strconv.Itoa(len(c.Nights)), spark(series, 24), last, since})
	}
	return p.table([]string{"CELL", "AXES", "RUNS", "OVER TIME", "LAST", "CHANGED"}, rows, 0, 2)
}

func (p *historyPage) heading() string {
	info := p.info()
	if info.Title == "" {
		return p.value
	}
	return fmt.Sprintf("%s (%s)", p.value, info.Title)
}

// where tells a course from the others of its cell: the hosts that it was measured from, and the subject, as far as they differ.
func (p *historyPage) where(c history.Course, all []history.Course) string {
	var words []string
	hosts := strings.Join(c.Environment.Hosts, ", ")
	seen := map[string]bool{}
	for _, o := range all {
		if o.Cell.ID != c.Cell.ID {
			continue
		}
		if other := strings.Join(o.Environment.Hosts, ", "); other != hosts && !seen["hosts"] {
			words, seen["hosts"] = append(words, "from "+hosts), true
		}
		if c.Subject == nil || o.Subject == nil {
			continue
		}
		for _, x := range history.Different(*o.Subject, *c.Subject) {
			name, values, _ := strings.Cut(x, ": ")
			if _, is, _ := strings.Cut(values, " → "); !seen[name] {
				words, seen[name] = append(words, name+" "+is), true
			}
		}
	}
	return terminal.Clean(strings.Join(words, ", "))
}

// course is the table of one cell, with its changes.
func (p *historyPage) course(c history.Course, all []history.Course) error {
	info, series := p.info(), c.Series()
	p.say(2, fmt.Sprintf("%s of %s, matrix %s", p.heading(), strings.TrimSpace(c.Cell.ID+"  "+terminal.Clean(c.Cell.Name())), terminal.Clean(c.Cell.Matrix)))
	if where := p.where(c, all); where != "" {
		p.say(2, "measured apart: "+where)
	}
	room := 60
	if p.width > 0 {
		room = min(room, p.width)
	}
	if len(series) > 1 {
		fmt.Fprintf(p.out, "%s\n", spark(series, room))
	}
	for i := range c.Changes {
		p.say(2, p.changed(c, i))
	}
	fmt.Fprintln(p.out)
	marks := map[int]string{}
	for i, at := range c.At {
		marks[at] = "◂ " + percent(c.Changes[i].Shift())
	}
	var rows [][]string
	var notes []string
	for i, n := range c.Nights {
		var more []string
		if marks[i] != "" {
			more = append(more, marks[i])
		}
		for _, x := range n.New {
			if p.narrow() {
				x, _, _ = strings.Cut(x, ":")
			}
			more = append(more, terminal.Clean(x))
		}
		number, spread := "–", ""
		if n.Usable > 0 {
			number = report.Show(info, plan.Value{Number: n.Number})
			spread = span(n, info)
		}
		doubt := doubts(n)
		if p.narrow() && doubt != "" { // beside the number all the same
			number += " ?"
			notes = append(notes, "? "+day(n.Started)+": "+doubt)
		}
		rows = append(rows, []string{day(n.Started), n.Run, number, spread, doubt, strings.Join(more, "; ")})
	}
	err := p.table([]string{"BEGIN (UTC)", "RUN", "MEDIAN", "OF REPETITIONS", "DOUBTS", "NEW"}, rows, 1, 3, 4)
	for _, note := range notes {
		p.say(2, note)
	}
	return err
}

// narrow tells that there is no room for everything.
func (p *historyPage) narrow() bool { return p.width > 0 && p.width < 110 }

// table leaves columns out that are empty and, where there is no room for all, those named.
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
	return tabulateIn(p.width, p.out, pick(head), some)
}

func (p *historyPage) changed(c history.Course, i int) string {
	x, info := c.Changes[i], p.info()
	n := c.Nights[c.At[i]]
	text := fmt.Sprintf("%s since %s (%s): %s → %s, p = %.3g", percent(x.Shift()), day(n.Started), n.Run,
		report.Show(info, plan.Value{Number: x.Before}), report.Show(info, plan.Value{Number: x.After}), x.P)
	if causes := c.Causes(i); len(causes) > 0 {
		text += "; what else changed: " + strings.Join(causes, "; ")
	} else {
		text += "; nothing that the brokers say of themselves changed"
	}
	return terminal.Clean(text)
}

// span is the least and the greatest of a night's repetitions.
func span(n history.Night, info plan.ValueInfo) string {
	if n.Usable < 2 {
		return ""
	}
	least, most := math.Inf(1), math.Inf(-1)
	for _, r := range n.Repetitions {
		if r.Usable() {
			least, most = min(least, r.Value.Number), max(most, r.Value.Number)
		}
	}
	return fmt.Sprintf("%d: %s … %s", n.Usable, report.Show(info, plan.Value{Number: least}), report.Show(info, plan.Value{Number: most}))
}

// doubts are verdicts, flags, and why there is no number.
func doubts(n history.Night) string {
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

func percent(shift float64) string {
	if math.IsInf(shift, 0) {
		return "from none"
	}
	return fmt.Sprintf("%+.1f %%", 100*shift)
}

// spark draws a series in so many columns; of a longer one, the median of those that share a column. Its foot is its least, its head its greatest.
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

// csv is a line for each repetition, numbers as they are.
func (p *historyPage) csv() error {
	w := csv.NewWriter(p.out)
	_ = w.Write([]string{"cell", "matrix", "axes", "run", "begin", "repetition", "value", "number", "bound", "na", "flags", "verdict", "subject", "environment", "hosts", "lockstep", "change"})
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
			_ = w.Write([]string{c.ID, c.Matrix, c.Name(), x.Run, x.At.Format(time.RFC3339), strconv.Itoa(x.Repetition), p.value, number,
				strconv.FormatFloat(x.Value.Bound, 'g', -1, 64), x.Value.NA, strings.Join(flags, " "), string(x.Verdict), x.Subject, x.Environment,
				strings.Join(p.answer.Environments[x.Environment].Hosts, " "), x.Version, since[c.ID+" "+x.Run]})
		}
	}
	w.Flush() // its error is that of every write
	return w.Error()
}

// changes are the shifts, by cell and the first run of the new level.
func (p *historyPage) changes() map[string]string {
	all := map[string]string{}
	for _, c := range history.Courses(p.answer) {
		for i, x := range c.Changes {
			all[c.Cell.ID+" "+c.Nights[c.At[i]].Run] = strconv.FormatFloat(x.Shift(), 'g', 4, 64)
		}
	}
	return all
}

// jsonChange is a change as JSON has it.
type jsonChange struct {
	Cell   string   `json:"cell"`
	Hosts  []string `json:"hosts"`
	Since  string   `json:"since"` // run
	Before float64  `json:"before"`
	After  float64  `json:"after"`
	P      float64  `json:"p"`
	Causes []string `json:"causes,omitempty"`
}

func (p *historyPage) json() error {
	changes := []jsonChange{}
	for _, c := range history.Courses(p.answer) {
		for i, x := range c.Changes {
			changes = append(changes, jsonChange{c.Cell.ID, c.Environment.Hosts, c.Nights[c.At[i]].Run, x.Before, x.After, x.P, c.Causes(i)})
		}
	}
	return printJSON(p.out, struct {
		Value string `json:"value,omitempty"`
		plan.HistoryAnswer
		Changes []jsonChange `json:"changes"`
	}{p.value, p.answer, changes})
}
