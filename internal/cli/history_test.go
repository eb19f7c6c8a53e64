package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/history"
	"example.org/lockstep/lockstep/internal/plan"
)

// scheduledRuns is the response for a cell whose rate fell with a setting, with an outlier, a failed run, and a run on
// another host.
func scheduledRuns() plan.HistoryAnswer {
	a := plan.HistoryAnswer{Runs: 16, Subjects: map[string]plan.Subject{},
		Environments: map[string]plan.Environment{"e1": {Hosts: []string{"bench-1 (8 cores)"}},
			"e2": {Hosts: []string{"laptop (4 cores)"}}}}
	for fp, watermark := range map[string]string{"s1": "0.4", "s2": "0.6"} {
		a.Subjects[fp] = plan.Subject{Product: "RabbitMQ", Version: "4.0.5",
			Settings: map[string]string{"vm_memory_high_watermark": watermark}}
	}
	c := plan.HistoryCell{ID: "3f9c2d81aa07", Matrix: "nightly",
		Coordinates: []plan.Coordinate{{Axis: "mode", Value: []byte(`"confirm-each"`)}}}
	for n := range 16 {
		for repetition := 1; repetition <= 2; repetition++ {
			p := plan.HistoryPoint{Run: fmt.Sprintf("202601%02d-020000-nightly-%04x", n+1, 40503*n&0xffff),
				Matrix: "nightly", At: time.Date(2026, 1, n+1, 2, 0, 0, 0, time.UTC), Repetition: repetition,
				Value: plan.Value{Number: 10_000 + float64(n*n*7919%13*20+repetition*10)}, Verdict: plan.Valid,
				Subject: "s1", Environment: "e1", Version: "1.0"}
			switch {
			case n == 4:
				p.Value.Number *= 1.5
			case n == 6:
				p.Value, p.Verdict = plan.Value{NA: "not measured"}, plan.Unknown
			case n == 13:
				p.Environment = "e2"
			}
			if n >= 10 {
				p.Subject, p.Value.Number = "s2", p.Value.Number*0.91
			}
			c.Points = append(c.Points, p)
		}
	}
	c.First, c.Last = c.Points[0].At, c.Points[len(c.Points)-1].At
	a.Cells = []plan.HistoryCell{c}
	return a
}

func TestHistoryFormats(t *testing.T) {
	one, several, cells := scheduledRuns(), scheduledRuns(), scheduledRuns()
	second := several.Cells[0]
	second.ID, second.Coordinates, second.Points = "81d0aa073f9c",
		[]plan.Coordinate{{Axis: "mode", Value: []byte(`"fire-and-forget"`)}}, second.Points[:6]
	several.Cells = append(several.Cells, second)
	several.MorePoints, several.MoreCells = 1200, 3
	for name, x := range map[string]struct {
		value  string
		answer plan.HistoryAnswer
		width  int
	}{
		"history.txt":            {value: "publish.rate", answer: one},
		"history-60.txt":         {value: "publish.rate", answer: one, width: 60},
		"history-several.txt":    {value: "publish.rate", answer: several},
		"history-several-60.txt": {value: "publish.rate", answer: several, width: 60},
		"history-cells.txt":      {answer: cells},
	} {
		var b bytes.Buffer
		if err := newHistoryPage(&b, x.width, x.value, x.answer).text(); err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/"+name, b.String())
	}
	for name, write := range map[string]func(*historyPage) error{"history.csv": (*historyPage).csv,
		"history.json": (*historyPage).json} {
		var b bytes.Buffer
		if err := write(newHistoryPage(&b, 0, "publish.rate", one)); err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/"+name, b.String())
	}
}

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		series  []float64
		columns int
		want    string
	}{{nil, 9, ""}, {[]float64{5, 5}, 9, "▅▅"}, {[]float64{0, 1, 2, 3, 4, 5, 6, 7}, 9, "▁▂▃▄▅▆▇█"},
		{[]float64{1, 1, 1, 9, 9, 9}, 2, "▁█"}, {[]float64{1}, 0, ""}} {
		if is := spark(c.series, c.columns); is != c.want {
			t.Errorf("%v in %d: %q, want %q", c.series, c.columns, is, c.want)
		}
	}
	if n := len([]rune(spark(make([]float64, 1000), 60))); n != 60 {
		t.Errorf("%d columns", n)
	}
	if strings.ContainsRune(spark([]float64{1, 2}, 5), '\x1b') {
		t.Error("colours")
	}
}

// A history with a truncated file is rebuilt with one command, which the error names.
func TestTruncatedHistoryNamesTheRemedy(t *testing.T) {
	root := t.TempDir()
	twoCells(t, root, plan.Valid, plan.Valid)
	if err := os.WriteFile(filepath.Join(root, history.File), make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	err := remember(t.Context(), root, "run-1")
	if err == nil || !strings.Contains(err.Error(), "ctl history reindex --rebuild") ||
		strings.Contains(err.Error(), "later") {
		t.Errorf("got %v", err)
	}
	if _, err := history.Of(root).Reindex(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := remember(t.Context(), root, "run-1"); err != nil {
		t.Error(err)
	}
}
