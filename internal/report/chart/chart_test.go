package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares a drawing with a reviewed file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if !bytes.Equal(want, []byte(got)) {
		t.Errorf("%s differs; look at it, and write it with -update if it is right:\n%s", path, got)
	}
}

func ms(x float64) string { return fmt.Sprintf("%.3g ms", 1e3*x) }

func lines() Plot {
	return Plot{Title: "Latency over threads", X: Axis{Label: "threads", Names: []string{"1", "2", "8"},
		At: []float64{1, 2, 8}},
		Y: Axis{Label: "latency (log)", Kind: Log, Format: ms},
		Series: []Line{
			{Name: "p50", Points: []Point{{X: 1, Y: 0.001, Title: "1: 1 ms"},
				{X: 2, Y: 0.002, Low: 0.0015, High: 0.0025, Title: "2: 2 ms ± 0.5"},
				{X: 8, Y: 0.02, Flagged: true, Title: "8: 20 ms backlog"}}},
			{Name: "p99", Look: 1, Dash: 1, Shape: hollow,
				Points: []Point{{X: 1, Y: 0.01}, {X: 8, Y: 0.5, Break: true}}}},
		Absent: []Point{{X: 2, Title: `2: <failed> & "quoted"`}}}
}

func course() Plot {
	return Plot{Title: "Rates over time", X: Axis{Label: "seconds"}, Y: Axis{Label: "msg/s", Zero: true},
		Series: []Line{{Name: "sent", Shape: NoMark, Step: true,
			Points: []Point{{X: -1, Y: 50}, {X: 0, Y: 100}, {X: 1, Y: 0}, {X: 2, Y: 100}, {X: 3, Y: 100}}}},
		Bands: []Band{{From: 0, To: 3, Class: "band", Text: "the measurement"},
			{From: 1, To: 2, Class: "fault", Text: "cut"}},
		Marks: []Mark{{At: 1, Text: "fault", Full: "fault at 1 s"},
			{At: 1.05, Text: "agent-lost", Full: "agent-lost at 1.05 s"}},
		Hovers: []Band{{From: 1, To: 2, Text: "1–2 s: sent 0/s"}}}
}

func bars() Rows {
	return Rows{Title: "Throughput over mode", X: Axis{Label: "msg/s", Zero: true}, Rows: []Row{
		{Name: "confirm-each", Values: []Bar{{At: 1200, Text: "1,200", Title: "sent 1,200"},
			{At: 800, Shape: hollow, Text: "800 backlog", Flagged: true}}},
		{Name: "a name that is far too long for the room there is",
			Values: []Bar{{At: 300, Low: 250, High: 420, Look: 1, Text: "300"}}},
		{Name: "gone", Values: []Bar{{Absent: true, Text: "failed", Title: "connection refused"}}}}}
}

func dots() Rows {
	return Rows{Title: "Latency over mode", X: Axis{Label: "latency (log)", Kind: Log, Format: ms}, Rows: []Row{
		{Name: "confirm-each", Values: []Bar{{At: 0.001, Title: "p50 1 ms"}, {At: 0.03, Shape: hollow},
			{At: 0.2, Shape: cross}, {At: 0.004, Look: 1}}},
		{Name: "gone", Values: []Bar{{Absent: true, Text: "backlog"}}}}}
}

func percentiles() Plot {
	p := Plot{Title: "Distribution", X: Axis{Label: "percentile", Kind: Percentile},
		Y: Axis{Label: "latency (log)", Kind: Log, Format: ms}}
	var l Line
	for i := range 8 {
		l.Points = append(l.Points, Point{X: 1 - math.Pow(10, -float64(i)/2), Y: 0.001 * math.Pow(2, float64(i)),
			NoMarker: i%2 == 1})
	}
	p.Series = []Line{l}
	return p
}

func TestGolden(t *testing.T) {
	for name, svg := range map[string]string{"lines.svg": lines().SVG(), "course.svg": course().SVG(),
		"bars.svg": bars().SVG(), "dots.svg": dots().SVG(),
		"percentiles.svg": percentiles().SVG(), "key.html": Key(lines().Series)} {
		golden(t, name, svg)
		wellFormed(t, name, svg)
	}
}

// wellFormed parses a drawing as XML: a browser shows only a part of an invalid one.
func wellFormed(t *testing.T, name, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}

// numbers returns the values of an attribute of those elements that begin with the given text.
func numbers(t *testing.T, svg, element, attribute string) (all []float64) {
	t.Helper()
	for _, line := range strings.Split(svg, "\n") {
		if !strings.HasPrefix(line, element) {
			continue
		}
		_, rest, _ := strings.Cut(line, " "+attribute+`="`)
		text, _, _ := strings.Cut(rest, `"`)
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%s of %s: %v", attribute, line, err)
		}
		all = append(all, x)
	}
	return all
}

// TestBarsBeginAtZero proves that the lengths of bars are proportional to their values.
func TestBarsBeginAtZero(t *testing.T) {
	r := Rows{X: Axis{Zero: true}, Rows: []Row{{Name: "a", Values: []Bar{{At: 900}}},
		{Name: "b", Values: []Bar{{At: 1000}}}}}
	wide := numbers(t, r.SVG(), `<rect class="s0"`, "width")
	if len(wide) != 2 || math.Abs(wide[0]/wide[1]-0.9) > 0.005 {
		t.Errorf("bars of 900 and 1000 are %v wide", wide)
	}
}

// TestPointWithoutLineHasASign proves that a single point is visible: a live drawing of one second, or a second between
// two gaps.
func TestPointWithoutLineHasASign(t *testing.T) {
	for _, c := range []struct {
		points []Point
		signs  int
	}{
		{[]Point{{X: 1, Y: 1, NoMarker: true}}, 1},
		{[]Point{{X: 1, Y: 1, NoMarker: true}, {X: 2, Y: 1, NoMarker: true}}, 0},
		{[]Point{{X: 1, Y: 1, NoMarker: true}, {X: 2, Y: 1, NoMarker: true},
			{X: 4, Y: 1, NoMarker: true, Break: true}}, 1},
	} {
		svg := Plot{Series: []Line{{Points: c.points}}}.SVG()
		if got := strings.Count(svg, `<g class="m `); got != c.signs {
			t.Errorf("%v: %d signs, want %d:\n%s", c.points, got, c.signs, svg)
		}
	}
}

// TestEveryNineHasTheSameRoom covers the axis of percentiles.
func TestEveryNineHasTheSameRoom(t *testing.T) {
	s := Axis{Kind: Percentile}.fit([]float64{0, 0.9999})
	for i, q := range []float64{0, 0.9, 0.99, 0.999, 0.9999} {
		if got := s.place(q); math.Abs(got-float64(i)/4) > 1e-9 {
			t.Errorf("%v is at %v, want %v", q, got, float64(i)/4)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		axis   Axis
		values []float64
		want   string
	}{
		{Axis{Zero: true}, []float64{0, 47}, "0 10 20 30 40 50"},
		{Axis{Zero: true}, []float64{0, 0}, "0 0.2 0.4 0.6 0.8 1"},
		{Axis{Zero: true, Whole: true}, []float64{1, 2}, "0 1 2"},
		{Axis{Zero: true}, []float64{-3, 8}, "-5 0 5 10"},
		{Axis{Kind: Log}, []float64{3, 40}, "2 5 10 20 50"},
		{Axis{Kind: Log}, []float64{3, 90000}, "10 100 1000 10000 100000"},
		{Axis{Kind: Log}, []float64{0, -1}, "1 2 5 10"},
		{Axis{Names: []string{"1", "2", "8"}, At: []float64{1, 2, 8}}, []float64{2}, "1 2 8"},
		{Axis{Kind: Percentile}, []float64{0, 0.9995}, "0 % 50 % 90 % 99 % 99.9 %"},
		{Axis{Kind: Ordinal, Names: []string{"0ms", "50ms"}}, nil, "0ms 50ms"},
	} {
		var got []string
		for _, tick := range c.axis.fit(c.values).ticks() {
			if got = append(got, tick.text); tick.at < -1e-9 || tick.at > 1+1e-9 {
				t.Errorf("%v: tick %s is at %v", c.values, tick.text, tick.at)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("ticks for %v are %q, want %q", c.values, got, c.want)
		}
	}
}

// TestTicksEnd proves this also for numbers where x+1 equals x.
func TestTicksEnd(t *testing.T) {
	for _, kind := range []Kind{Linear, Log} {
		for _, values := range [][]float64{{9.2e18, 9.2e18 + 4000}, {1e300, 1.0000001e300}, {5e-324, 1e308}} {
			if n := len((Axis{Kind: kind}).fit(values).ticks()); n > maxTicks*3 {
				t.Errorf("%d ticks for %v", n, values)
			}
		}
	}
}

// TestPlacesWithoutAValueHaveRoom proves that all drawings of an axis have its values at the same positions, also with
// few values.
func TestPlacesWithoutAValueHaveRoom(t *testing.T) {
	s := Axis{Names: []string{"1", "2", "8"}, At: []float64{1, 2, 8}}.fit([]float64{2})
	if a, b, c := s.place(1), s.place(2), s.place(8); !(0 < a && a < b && b < c && c < 1) {
		t.Errorf("places %v, %v, %v", a, b, c)
	}
}

// TestOddNumbersDrawSomething proves that impossible numbers are not written as coordinates.
func TestOddNumbersDrawSomething(t *testing.T) {
	for _, y := range []float64{0, -1, 1e-300, 1e300, math.Inf(1), math.NaN()} {
		for _, kind := range []Kind{Linear, Log} {
			p := Plot{X: Axis{}, Y: Axis{Kind: kind}, Series: []Line{{Points: []Point{{X: 1, Y: y}, {X: 1, Y: 2}}}}}
			r := Rows{X: Axis{Kind: kind}, Rows: []Row{{Name: "a", Values: []Bar{{At: y}, {At: 2}}}}}
			for _, svg := range []string{p.SVG(), r.SVG(), Plot{}.SVG(), Rows{}.SVG()} {
				if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
					t.Errorf("%v on axis %v: %s", y, kind, svg)
				}
			}
		}
	}
}

// TestLongNamesKeepTheirEnds proves that shortened names keep their ends, which often differ.
func TestLongNamesKeepTheirEnds(t *testing.T) {
	got := fitted("connection-per-message-confirm", 100)
	if !strings.HasPrefix(got, "connec") || !strings.HasSuffix(got, "firm") || wide(got) > 100 {
		t.Errorf("got %q", got)
	}
}
