package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"example.org/lockstep/lockstep/internal/judge"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/internal/report/chart"
	"example.org/lockstep/lockstep/internal/runs"
)

// node finds elements and their texts in a parsed page.
type node struct{ *html.Node }

func parsed(t *testing.T, page []byte) node {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return node{root}
}

func (n node) attr(name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// all returns the elements of a kind in order.
func (n node) all(element string) (found []node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.Data == element {
			found = append(found, node{d})
		}
	}
	return found
}

func (n node) id(id string) node {
	for d := range n.Descendants() {
		if (node{d}).attr("id") == id {
			return node{d}
		}
	}
	return node{&html.Node{}}
}

func (n node) text() string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// TestTablesAreTheTerminals compares every field of the page's tables with the output on the terminal.
func TestTablesAreTheTerminals(t *testing.T) {
	run := world(t, "r1")
	page := parsed(t, r1Page(t))
	outcomes, err := run.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	tables := report.Build(run.Plan(), outcomes)
	if len(tables) != 4 {
		t.Fatalf("the run has %d tables, want two of its matrix and two of searches", len(tables))
	}
	heading := page.all("header")[0].text()
	for _, fact := range report.Facts(run.Plan(), outcomes) {
		if want := fact.Name + strings.Join(strings.Fields(fact.Text), " "); !strings.Contains(heading, want) {
			t.Errorf("the heading has no %q: %s", want, heading)
		}
	}
	numbers := 0
	for i, want := range tables {
		section := page.id(fmt.Sprintf("t%d", i+1))
		if got := section.all("h3")[0].text(); got != strings.Join(strings.Fields(want.Title), " ") {
			t.Errorf("table %d is called %q, want %q", i+1, got, want.Title)
		}
		rows := section.all("tbody")[0].all("tr")
		if len(rows) != len(want.Rows) {
			t.Fatalf("table %d has %d rows, want %d", i+1, len(rows), len(want.Rows))
		}
		layout := want.Layout()
		for r, row := range layout.Rows {
			cells := append(rows[r].all("th"), rows[r].all("td")...)
			for c, s := range row {
				numbers += sameField(t, cells[c], s, fmt.Sprintf("table %d row %d %q", i+1, r+1, layout.Head[c]))
			}
		}
		for n, note := range want.Notes {
			if got := page.id(fmt.Sprintf("t%dn%d", i+1, n+1)).text(); got != strings.Join(strings.Fields(note), " ") {
				t.Errorf("note %d of table %d is %q, want %q", n+1, i+1, got, note)
			}
		}
	}
	if numbers < 20 {
		t.Errorf("only %d numbers were compared", numbers)
	}
}

// sameField compares a field with its text in the page. It returns 1 if the field has a number.
func sameField(t *testing.T, cell node, f report.Shown, where string) int {
	t.Helper()
	want := f.Text + f.Tail
	got := cell.text()
	if sups := cell.all("sup"); len(sups) > 0 {
		got = strings.TrimSpace(strings.TrimSuffix(got, sups[0].text()))
		var notes []string
		for _, n := range f.Notes {
			notes = append(notes, strconv.Itoa(n))
		}
		if sups[0].text() != strings.Join(notes, ", ") {
			t.Errorf("%s: footnotes %q, want %v", where, sups[0].text(), f.Notes)
		}
	}
	if got != strings.Join(strings.Fields(want), " ") {
		t.Errorf("%s: shows %q, want %q", where, got, want)
	}
	if f.Of == nil || f.Of.Number == nil {
		return 0
	}
	data := cell.all("data")
	if len(data) != 1 {
		t.Errorf("%s: no number is in it", where)
		return 0
	}
	if x, err := strconv.ParseFloat(data[0].attr("value"), 64); err != nil || x != *f.Of.Number {
		t.Errorf("%s: the number is %q, want %v", where, data[0].attr("value"), *f.Of.Number)
	}
	return 1
}

// TestValuesAreTheOutcomes compares all values of every task in the page with its outcome.
func TestValuesAreTheOutcomes(t *testing.T) {
	run := world(t, "r1")
	page := parsed(t, r1Page(t))
	outcomes, _ := run.Outcomes()
	compared := 0
	for _, o := range outcomes {
		var tables []node
		for _, table := range page.id("c" + o.Cell).all("table") {
			if table.attr("class") == "values" {
				tables = append(tables, table)
			}
		}
		if len(tables) < o.Repetition {
			t.Fatalf("cell %s has %d tables of values", o.Cell, len(tables))
		}
		shown := map[string]string{}
		for _, row := range tables[o.Repetition-1].all("tr") {
			shown[row.all("th")[0].text()] = row.all("data")[0].attr("value")
		}
		for name, v := range o.Values {
			if v.NA != "" {
				if shown[name] != "" {
					t.Errorf("task %s: %s has no number (%s), and the page shows %s", o.Task, name, v.NA, shown[name])
				}
				continue
			}
			compared++
			if x, err := strconv.ParseFloat(shown[name], 64); err != nil || x != v.Number {
				t.Errorf("task %s: %s is %v in the record, %q on the page", o.Task, name, v.Number, shown[name])
			}
		}
	}
	if compared < 200 {
		t.Errorf("only %d values were compared", compared)
	}
}

// TestDistributionsAreTheRecords proves that the points of the percentile drawing are the quantiles of the outcome, and
// the maximum.
func TestDistributionsAreTheRecords(t *testing.T) {
	run := world(t, "r1")
	page := parsed(t, r1Page(t))
	task := run.Plan().Tasks()[0]
	outcomes, _ := run.Outcomes()
	cell := page.id("c" + task.Cell.ID)
	var titles []string
	for _, g := range cell.all("svg")[1].all("g") { // after the key
		for _, title := range g.all("title") {
			titles = append(titles, title.text())
		}
	}
	all := cell.text()
	for _, name := range []string{"p50", "p90", "p99"} {
		want := name + ": " + report.Format(plan.Seconds, outcomes[0].Values["publish."+name].Number)
		if !strings.Contains(all, want) {
			t.Errorf("no point says %q; there are %q", want, titles)
		}
	}
	if want := "max of 1000: " + report.Format(plan.Seconds,
		outcomes[0].Values["publish.max"].Number); !strings.Contains(all, want) {
		t.Errorf("no point says %q; there are %q", want, titles)
	}
}

// TestABacklogHasNoLatency proves that end-to-end latencies with a backlog are not drawn: they only depend on the
// duration of the test.
func TestABacklogHasNoLatency(t *testing.T) {
	cell := parsed(t, r1Page(t)).id("cc0005")
	var names []string
	for _, f := range cell.all("figcaption") {
		names = append(names, f.text())
	}
	if !slices.Contains(names, "End-to-end latency, distribution") {
		t.Fatalf("the cell has drawings %q", names)
	}
	for _, f := range cell.all("figure") {
		switch f.all("figcaption")[0].text() {
		case "End-to-end latency, distribution":
			if strings.Contains(f.text(), "p99:") || !strings.Contains(f.text(), "backlog") {
				t.Errorf("a backlog's end-to-end latency is drawn, or not explained: %s", f.text())
			}
		case "Latency over time":
			if strings.Contains(f.text(), "endToEnd p50") || strings.Contains(f.text(), "e2e p50") || !strings.Contains(f.text(), "e2e: backlog") {
				t.Errorf("a backlog's end-to-end latency is drawn over time, or not explained: %.300s", f.text())
			}
		}
	}
}

// TestUsersTextIsOnlyText proves that the elements and scripts of a page do not depend on names.
func TestUsersTextIsOnlyText(t *testing.T) {
	text := r1Page(t)
	page := parsed(t, text)
	scripts := page.all("script")
	if len(scripts) != 2 || scripts[0].attr("type") != "application/json" || scripts[1].FirstChild.Data != report.Script {
		t.Fatalf("the page has %d script elements, want the one with data and the script", len(scripts))
	}
	var d data
	if err := json.Unmarshal([]byte(scripts[0].FirstChild.Data), &d); err != nil || len(d.Tables) != 4 ||
		d.Tables[0].Title != hostile[0] {
		t.Errorf("the data of the page does not read again: %v, %d tables", err, len(d.Tables))
	}
	for _, element := range []string{"img", "iframe", "object", "form", "base"} {
		if n := len(page.all(element)); n > 0 {
			t.Errorf("a name became %d elements <%s>", n, element)
		}
	}
	for d := range page.Descendants() {
		for _, a := range d.Attr {
			if strings.HasPrefix(a.Key, "on") || strings.HasPrefix(strings.TrimSpace(strings.ToLower(a.Val)),
				"javascript:") {
				t.Errorf("<%s %s=%q> runs a script", d.Data, a.Key, a.Val)
			}
		}
	}
	all := page.text()
	for _, name := range hostile {
		if !strings.Contains(all, strings.Join(strings.Fields(name), " ")) {
			t.Errorf("the name %q is nowhere on the page as it is", name)
		}
	}
	if bytes.Contains(text, []byte("ZgotmplZ")) {
		t.Error("the template found something that it does not trust")
	}
}

// TestNothingComesFromOutside proves that the page's policy forbids requests, and that the page contains no address to
// request.
func TestNothingComesFromOutside(t *testing.T) {
	page := parsed(t, r1Page(t))
	policy := ""
	for _, m := range page.all("meta") {
		if m.attr("http-equiv") == "Content-Security-Policy" {
			policy = m.attr("content")
		}
	}
	sum := sha256.Sum256([]byte(page.all("script")[1].FirstChild.Data))
	allowed := "default-src 'none'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; "
	if !strings.HasPrefix(policy, allowed) || strings.Count(policy, "script-src") != 1 || strings.Contains(policy, "http") {
		t.Errorf("policy %q, want only the script: %q", policy, allowed)
	}
	for d := range page.Descendants() {
		for _, a := range d.Attr {
			outside := a.Key == "src" || a.Key == "href" && !strings.HasPrefix(a.Val, "#") && a.Val != "data:,"
			if outside || strings.Contains(a.Val, "url(") {
				t.Errorf("<%s %s=%q> is a request", d.Data, a.Key, a.Val)
			}
		}
	}
	for _, s := range page.all("style") {
		if strings.Contains(s.text(), "url(") || strings.Contains(s.text(), "@import") {
			t.Error("the style needs something from outside")
		}
	}
}

// TestALargeRunStaysReadable proves that a run of a thousand cells makes a file of a few MB, with details of the failed
// cells.
func TestALargeRunStaysReadable(t *testing.T) {
	p := matrix(t, "large", 1000, 1)
	dir, err := runs.Create(t.TempDir(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, f := measured(p.Tasks()[0])
	for _, task := range dir.Plan().Tasks() {
		m := record.NewMerged()
		if task.Cell.Index < 30 || task.Cell.Index == 777 { // the others can be in tables without a record
			own := s
			own.Task = task.ID
			m.Add(own)
			if err := dir.Append(task.ID, own); err != nil {
				t.Fatal(err)
			}
		}
		facts := f
		if task.Cell.Index == 777 {
			facts.Failure = "it broke"
		}
		o := judge.Judge(task, m, facts)
		if task.Cell.Index != 777 {
			o.Verdict, o.Reasons = plan.Valid, nil
			o.Values["publish.rate"] = plan.Value{Number: float64(task.Cell.Index)}
		}
		keepFast(t, dir, o)
	}
	text := written(t, Options{}, dir)
	if len(text) > 4<<20 {
		t.Errorf("the file has %d bytes", len(text))
	}
	page := parsed(t, text)
	if rows := page.id("t1").all("tbody")[0].all("tr"); len(rows) < 1000 {
		t.Errorf("the table has %d rows", len(rows))
	}
	if page.id("cc0777").Data == "" {
		t.Error("the cell that failed is not shown in detail")
	}
	if got := page.id("cells").text(); !strings.Contains(got,
		fmt.Sprintf("Details of %d of 1000 cells", Detailed)) {
		t.Errorf("nothing says what is left out: %.200s", got)
	}
	if full := written(t, Options{Full: true}, dir); bytes.Count(full, []byte(`<details class="cell"`)) != 1000 {
		t.Errorf("a full report has %d cells", bytes.Count(full, []byte(`<details class="cell"`)))
	}
}

// TestColumnsOfRunsAreAdjacent proves that each value has one column per run, and that drawings show both runs.
func TestColumnsOfRunsAreAdjacent(t *testing.T) {
	first, second := world(t, "first"), world(t, "second")
	page := parsed(t, written(t, Options{}, first, second))
	var head []string
	for _, h := range page.id("t1").all("thead")[0].all("th") {
		head = append(head, h.text())
	}
	if want := []string{"broker", "threads", "run=A Publish msg/s", "run=B Publish msg/s",
		"run=A Consume msg/s"}; !slices.Equal(head[:5], want) {
		t.Errorf("columns are %q, want %q first", head, want)
	}
	outcomes, _ := second.Outcomes()
	row := page.id("t1").all("tbody")[0].all("tr")[0].all("td")
	if got, want := row[1].all("data")[0].attr("value"),
		strconv.FormatFloat(outcomes[0].Values["publish.rate"].Number, 'f', -1, 64); got != want {
		t.Errorf("run B sent %s, want %s", got, want)
	}
	keys := page.id("axes").all("ul")
	if len(keys) == 0 || !strings.Contains(keys[0].text(), "run=A") || !strings.Contains(keys[0].text(), "run=B") {
		t.Error("the drawings do not tell the runs apart")
	}
	if got := page.id("cc0000").text(); !strings.Contains(got, "run A, repetition 1") ||
		!strings.Contains(got, "run B, repetition 2") {
		t.Error("the cell's distributions are not of both runs")
	}
}

// TestClosedCellsSayWhoseTheyAre proves that cells with the same name and another workload in another run are separate,
// with the name of their run.
func TestClosedCellsSayWhoseTheyAre(t *testing.T) {
	one := func(id, cell string) *runs.Run {
		p := matrix(t, id, 1, 1)
		p.Cells[0].ID = cell
		dir, err := runs.Create(t.TempDir(), p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dir.Close() })
		keepTask(t, dir, dir.Plan().Tasks()[0], nil)
		return dir
	}
	first, second, same := one("r1", "one"), one("r2", "other"), one("r3", "other")
	marks := func(page node, cell string) (all string) {
		for _, b := range page.id("c" + cell).all("summary")[0].all("b") {
			all += b.text()
		}
		return all
	}
	page := parsed(t, written(t, Options{}, first, second, same))
	if a, b := marks(page, "one"), marks(page, "other"); a != "A" || b != "BC" {
		t.Errorf("the closed cells are of %q and %q, want of A, and of B and C", a, b)
	}
	if got := marks(parsed(t, written(t, Options{}, first)), "one"); got != "" {
		t.Errorf("the cells of the only run are marked %q", got)
	}
}

// The limits of the load generator precede the tables, whose rows leave out the flag shared-host. The heading counts
// the tasks with other flags.
func TestLimitsPrecedeTheTables(t *testing.T) {
	p := matrix(t, "limits", 3, 1)
	dir, err := runs.Create(t.TempDir(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	flags := [][]plan.Flag{{plan.SharedHost}, {plan.Backlog, plan.SharedHost}, nil}
	for i, task := range p.Tasks() {
		s, f := measured(task)
		m := record.NewMerged()
		m.Add(s)
		o := judge.Judge(task, m, f)
		for name, v := range o.Values {
			v.Flags = flags[i]
			o.Values[name] = v
		}
		if i == 0 {
			o.Limitations = []plan.Limitation{{Flag: plan.SharedHost, Cause: plan.CauseCPU, Host: "h", Agents: []string{"a"},
				Value: 1.9, Max: 2}}
		}
		if err := errors.Join(dir.Append(task.ID, s), dir.Finish(o)); err != nil {
			t.Fatal(err)
		}
	}
	text := string(written(t, Options{}, dir))
	limits, tables := strings.Index(text, "shared-host: the broker and agent a"), strings.Index(text, ">Tables</h2>")
	if limits < 0 || limits > tables {
		t.Errorf("the limits are at %d, and the tables at %d", limits, tables)
	}
	if heading := parsed(t, []byte(text)).all("header")[0].text(); !strings.Contains(heading, "3 valid 1 with flags") {
		t.Errorf("the heading does not count the task with flags: %s", heading)
	}
}

// A cell without confirms has no meaning of a confirm, whatever its driver describes.
func TestCellsWithoutConfirmsHaveNoMeaningOfAConfirm(t *testing.T) {
	p := matrix(t, "modes", 2, 1)
	p.Cells[0].Workload.Publishers.Mode = "fire-and-forget"
	dir, err := runs.Create(t.TempDir(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	for _, task := range p.Tasks() {
		keepTask(t, dir, task, nil)
	}
	page := parsed(t, written(t, Options{}, dir))
	for i, c := range p.Cells {
		text := page.id("c" + c.ID).text()
		if got, want := strings.Contains(text, "Meaning of a confirm: confirmed"), i == 1; got != want {
			t.Errorf("cell %d, mode %s: %v, want %v:\n%s", i, c.Workload.Publishers.Mode, got, want, text)
		}
	}
}

// TestHeadingsStandWhereTheirCellsDo proves that headings are aligned like the texts below them.
func TestHeadingsStandWhereTheirCellsDo(t *testing.T) {
	side := func(n node, row bool) string {
		if row || slices.Contains(strings.Fields(n.attr("class")), "left") {
			return "left"
		}
		return "right"
	}
	compared := 0
	for _, table := range parsed(t, r1Page(t)).all("table") {
		heads, rows := table.all("thead"), table.all("tbody")[0].all("tr")
		if len(heads) == 0 || len(rows) == 0 {
			continue
		}
		var cells []node
		for c := range rows[0].ChildNodes() {
			if c.Type == html.ElementNode {
				cells = append(cells, node{c})
			}
		}
		for i, head := range heads[0].all("th") {
			compared++
			if want := side(cells[i], cells[i].Data == "th"); side(head, false) != want {
				t.Errorf("the heading %q stands %s, and its cells %s", head.text(), side(head, false), want)
			}
		}
	}
	if compared < 20 {
		t.Errorf("only %d headings were compared", compared)
	}
}

func TestTheSameRecordsGiveTheSameBytes(t *testing.T) {
	run := world(t, "r1")
	if !bytes.Equal(written(t, Options{}, run), written(t, Options{}, run)) {
		t.Error("two reports of one run differ")
	}
}

// TestADamagedRecordIsNoDisaster proves that impossible windows neither exhaust the memory nor prevent the page.
func TestADamagedRecordIsNoDisaster(t *testing.T) {
	p := matrix(t, "odd", 1, 1)
	dir, err := runs.Create(t.TempDir(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	task := dir.Plan().Tasks()[0]
	s, f := measured(task)
	odd := record.Snapshot{Task: task.ID, Agent: "odd", Seq: 1}
	for _, index := range []int{-1 << 40, 1 << 40} {
		odd.Windows = append(odd.Windows, record.Window{Index: index, Start: int64(index), Length: 1e9})
		odd.Windows[len(odd.Windows)-1].Counts[record.Sent] = 1
	}
	m := record.NewMerged()
	m.Add(s)
	for _, one := range []record.Snapshot{s, odd} {
		if err := dir.Append(task.ID, one); err != nil {
			t.Fatal(err)
		}
	}
	if err := dir.Finish(judge.Judge(task, m, f)); err != nil {
		t.Fatal(err)
	}
	if text := written(t, Options{}, dir); len(text) > 1<<20 {
		t.Errorf("the page has %d bytes", len(text))
	}
}

// TestWhatHappenedIsMarked proves that faults, gaps and lost agents are drawn at their times.
func TestWhatHappenedIsMarked(t *testing.T) {
	page := parsed(t, r1Page(t))
	rates := ""
	for _, f := range page.id("cc0003").all("figure") {
		if f.all("figcaption")[0].text() == "Rates over time" {
			rates = f.text()
			break
		}
	}
	for _, want := range []string{"fault injected by agent-", "disconnected", "the measurement"} {
		if !strings.Contains(rates, want) {
			t.Errorf("the drawing of rates does not tell of %q", want)
		}
	}
	if got := page.id("cc0003").text(); !strings.Contains(got, "measure, lost") {
		t.Error("nothing says in which phase the agent was lost")
	}
	if got := page.id("environment").text(); !strings.Contains(got, "host-b") || !strings.Contains(got, "durable") {
		t.Error("hosts and the broker's settings are missing")
	}
}

// TestNothingToDrawIsNoDrawing proves that the reason for missing data replaces empty axes.
func TestNothingToDrawIsNoDrawing(t *testing.T) {
	if f := plotted("Latency over time", chart.Plot{Series: []chart.Line{{Name: "publish"}}},
		"send: backlog"); f.SVG != "" || f.Key != "" || len(f.Notes) != 1 {
		t.Errorf("it is drawn: %+v", f)
	}
	if f := distribution("Latency", "time", []curve{{why: "backlog"}}); f.SVG != "" || len(f.Notes) != 1 {
		t.Errorf("it is drawn: %+v", f)
	}
}
