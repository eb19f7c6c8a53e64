package record

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// The border between measurement and what follows must be a border of windows too, or rates would count events of the other side.
func TestWindowOf(t *testing.T) {
	const s, ms = int64(time.Second), int64(time.Millisecond)
	for _, c := range []struct {
		measure, t    int64
		index         int
		start, length int64
	}{
		{3 * s, 0, 0, 0, s}, {3 * s, s - 1, 0, 0, s}, {3 * s, s, 1, s, s}, {3 * s, -1, -1, -s, s}, {3 * s, -s, -1, -s, s},
		{3 * s, -s - 1, -2, -2 * s, s}, {3 * s, 3*s - 1, 2, 2 * s, s}, {3 * s, 3 * s, 3, 3 * s, s}, {3 * s, 4 * s, 4, 4 * s, s},
		{2500 * ms, 2*s + 1, 2, 2 * s, 500 * ms}, {2500 * ms, 2500*ms - 1, 2, 2 * s, 500 * ms}, {2500 * ms, 2500 * ms, 3, 2500 * ms, s},
		{2500 * ms, 3499 * ms, 3, 2500 * ms, s}, {2500 * ms, 3500 * ms, 4, 3500 * ms, s}, {300 * ms, 0, 0, 0, 300 * ms},
		{300 * ms, 300 * ms, 1, 300 * ms, s}, {300 * ms, -1, -1, -s, s}, {0, 5 * s, 5, 5 * s, s}, {0, -1, -1, -s, s},
	} {
		index, start, length := windowOf(c.t, c.measure)
		if index != c.index || start != c.start || length != c.length {
			t.Errorf("at %v of %v: window %d from %v for %v, want %d from %v for %v", time.Duration(c.t), time.Duration(c.measure),
				index, time.Duration(start), time.Duration(length), c.index, time.Duration(c.start), time.Duration(c.length))
		}
		if c.t < start || c.t >= start+length {
			t.Errorf("at %v of %v: not inside its window", time.Duration(c.t), time.Duration(c.measure))
		}
	}
}

func TestWindowJSON(t *testing.T) {
	w := Window{Index: -3, Start: -3 * second, Length: second}
	w.Counts[Sent], w.Counts[ConnBlockedNanos] = 12, -1
	w.Record(Processing, 5000)
	data, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"sent":12`, `"connBlockedNanos":-1`, `"processing":"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s does not contain %s", data, want)
		}
	}
	for _, not := range []string{`"received"`, `"lateness"`, "length"} {
		if strings.Contains(string(data), not) {
			t.Errorf("%s says %s, and there is none", data, not)
		}
	}
	var back Window
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if back.Index != w.Index || back.Start != w.Start || back.Length != w.Length || back.Measured || back.Counts != w.Counts ||
		back.Hists[Processing].Max() != 5000 || back.Hists[Send] != nil {
		t.Errorf("came back as %+v", back)
	}
	for _, bad := range []string{`{"counts":{"snet":1}}`, `{"hists":{"sedn":""}}`, `{"hists":{"send":"AA=="}}`, `{"length":-1}`,
		`{"length":1000000001}`, `[]`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("accepted %s", bad)
		}
	}
}

// Names are part of the stored format: each must be there, differ from the others and read back.
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
