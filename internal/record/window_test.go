package record

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// The border of the measurement is a border of windows. Otherwise rates would count events of the other side.
func TestWindowOf(t *testing.T) {
	const s, ms = int64(time.Second), int64(time.Millisecond)
	for _, c := range []struct {
		measure, t    int64
		index         int
		start, length int64
	}{
		{3 * s, 0, 0, 0, s}, {3 * s, s - 1, 0, 0, s}, {3 * s, s, 1, s, s}, {3 * s, -1, -1, -s, s},
		{3 * s, -s, -1, -s, s},
		{3 * s, -s - 1, -2, -2 * s, s}, {3 * s, 3*s - 1, 2, 2 * s, s}, {3 * s, 3 * s, 3, 3 * s, s},
		{3 * s, 4 * s, 4, 4 * s, s},
		{2500 * ms, 2*s + 1, 2, 2 * s, 500 * ms}, {2500 * ms, 2500*ms - 1, 2, 2 * s, 500 * ms},
		{2500 * ms, 2500 * ms, 3, 2500 * ms, s},
		{2500 * ms, 3499 * ms, 3, 2500 * ms, s}, {2500 * ms, 3500 * ms, 4, 3500 * ms, s}, {300 * ms, 0, 0, 0, 300 * ms},
		{300 * ms, 300 * ms, 1, 300 * ms, s}, {300 * ms, -1, -1, -s, s}, {0, 5 * s, 5, 5 * s, s}, {0, -1, -1, -s, s},
	} {
		index, start, length := windowOf(c.t, c.measure)
		if index != c.index || start != c.start || length != c.length {
			t.Errorf("at %v of %v: window %d from %v for %v, want %d from %v for %v", time.Duration(c.t),
				time.Duration(c.measure),
				index, time.Duration(start), time.Duration(length), c.index, time.Duration(c.start),
				time.Duration(c.length))
		}
		if c.t < start || c.t >= start+length {
			t.Errorf("at %v of %v: not inside its window", time.Duration(c.t), time.Duration(c.measure))
		}
	}
}

func TestWindowJSON(t *testing.T) {
	w := Window{Index: -3, Start: -3 * second, Length: second}
	w.Counts[Sent], w.Counts[ConnBlockedNanos] = 12, -1
	w.Publish(1, 12)
	w.Deliver(3)
	w.Record(EndToEnd, 5000)
	data, err := json.Marshal(Snapshot{Windows: []Window{w}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"sent":12`, `"connBlockedNanos":-1`, `"endToEnd":"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s does not contain %s", data, want)
		}
	}
	for _, not := range []string{`"received"`, `"send delay"`, "length"} {
		if strings.Contains(string(data), not) {
			t.Errorf("%s says %s, and there is none", data, not)
		}
	}
	var s Snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	back := s.Windows[0]
	if back.Index != w.Index || back.Start != w.Start || back.Length != w.Length || back.Measured ||
		back.Counts != w.Counts ||
		!slices.Equal(back.Published, []int64{0, 12}) || !slices.Equal(back.Delivered, []int64{0, 0, 0, 1}) ||
		back.Hists[EndToEnd].Max() != 5000 || back.Hists[Publish] != nil {
		t.Errorf("came back as %+v", back)
	}
	for bad, want := range map[string]string{
		`{"counts":{"snet":1}}`:        `"snet"`,
		`{"hists":{"sedn":""}}`:        `"sedn"`,
		`{"hists":{"publish":"AA=="}}`: "read window 0: ",
		`{"length":-1}`:                "read window 0: ",
		`{"length":1000000001}`:        "read window 0: ",
		`[]`:                           "cannot unmarshal array",
		`{"delivered":[` + strings.Repeat("0,", maxFlows) + `0]}`: "read window 0: ",
	} {
		if err := json.Unmarshal([]byte(`{"windows":[`+bad+`]}`), &s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

// Counts per flow are summed over owners, and a recycled window has none.
func TestFlowsAreCounted(t *testing.T) {
	c := NewCollector(time.Second)
	a, b := c.Recorder(), c.Recorder()
	for range 2 {
		a.Window(0, true).Publish(2, 5)
		a.Window(0, true).Publish(2, -1)
		b.Window(0, true).Publish(0, 3)
		b.Window(0, true).Deliver(1)
		a.Flush()
		b.Flush()
		windows, _ := c.Take()
		if w := windows[0]; len(windows) != 1 || !slices.Equal(w.Published, []int64{3, 0, 4}) ||
			!slices.Equal(w.Delivered, []int64{0, 1}) {
			t.Errorf("%d windows, the first with %v published and %v delivered", len(windows), w.Published, w.Delivered)
		}
	}
}

// Every flow has a number. Beyond 1,024 flows, several share one.
func TestFlowNumbers(t *testing.T) {
	for _, c := range []struct{ subscriptions, queues, numbers int }{{0, 0, 1}, {1, 1, 1}, {50, 1, 50}, {3, 4, 12},
		{2, 2000, 1024}, {5000, 3, 1024}} {
		f, seen := FlowsOf(c.subscriptions, c.queues), map[int]bool{}
		for s := range max(1, c.subscriptions) {
			for q := range max(1, c.queues) {
				seen[f.Of(s, q)] = true
			}
		}
		if len(seen) != c.numbers || f.Subscriptions*f.Queues != c.numbers || !seen[c.numbers-1] || f.Of(0, 0) != 0 {
			t.Errorf("%d subscriptions of %d queues: %d numbers of %+v, want %d", c.subscriptions, c.queues, len(seen),
				f, c.numbers)
		}
	}
}

// Names are part of the stored format: each exists, is unique, and can be parsed.
func TestNames(t *testing.T) {
	checkNames[Counter](t, Counters())
	checkNames(t, AllSeries())
	checkNames(t, all[SetKind](int(numSetKinds)))
	if _, err := numCounters.MarshalText(); err == nil {
		t.Error("a counter that is none has a name")
	}
}

func checkNames[T interface {
	~uint8
	MarshalText() ([]byte, error)
	String() string
}, P interface {
	*T
	UnmarshalText([]byte) error
}](t *testing.T, all []T) {
	t.Helper()
	seen := map[string]bool{}
	for _, x := range all {
		name, err := x.MarshalText()
		if err != nil || len(name) == 0 || seen[string(name)] || string(name) != x.String() {
			t.Errorf("%T %d: name %q, twice: %v, error %v", x, x, name, seen[string(name)], err)
		}
		seen[string(name)] = true
		var back T
		if err := P(&back).UnmarshalText(name); err != nil || back != x {
			t.Errorf("%s came back as %d: %v", name, back, err)
		}
	}
}
