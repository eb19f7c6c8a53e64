package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// repeated returns a snapshot of about this number of bytes, with a list of equal elements.
func repeated(size int, name, element string) []byte {
	n := max(1, (size-100)/(len(element)+1))
	return fmt.Appendf(nil, `{"protocol":1,"task":"t","agent":"a","seq":1,%q:[%s]}`, name,
		strings.TrimSuffix(strings.Repeat(element+",", n), ","))
}

// dense returns a histogram that is small in JSON and large in memory.
func dense(t testing.TB) string {
	t.Helper()
	h := NewHist()
	for i := range histBlocks {
		for j := range blockSize {
			if v := valueAt(i, j); v <= highest {
				h.Record(v)
			}
		}
	}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sparse returns pages with one number each.
func sparse(t testing.TB, pages int) string {
	t.Helper()
	s := SetPages{Key: SetKey{Kind: SetReceived}}
	for i := range pages {
		s.Pages = append(s.Pages, Page{uint64(i), &words{1}})
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestHostileSnapshotsCostLittle measures the memory of messages that would use a hundred to a thousand times their
// size.
func TestHostileSnapshotsCostLittle(t *testing.T) {
	const size, maxHeld, maxMade = 1 << 20, 14, 150
	hist := dense(t)
	for what, c := range map[string]struct {
		body []byte
		want string
	}{
		"empty windows":      {repeated(size, "windows", `{}`), "the bound is"},
		"windows of nothing": {repeated(size, "windows", `{"index":1,"start":1}`), "the bound is"},
		"windows of little":  {repeated(size, "windows", `{"index":1,"start":1,"counts":{"sent":1,"confirmed":1}}`), ""},
		"dense histograms": {repeated(size, "windows", `{"index":1,"start":1,"hists":{"publish":`+hist+`}}`),
			"histograms unpack to more than"},
		"dense histograms, all kinds": {repeated(size, "windows",
			`{"index":1,"start":1,"hists":{"publish":`+hist+`,"backpressure":`+hist+`,"pacing":`+hist+`}}`),
			"histograms unpack to more than"},
		"sparse pages":     {repeated(size, "sets", sparse(t, 100_000)), "the bound for"},
		"sets of a page":   {repeated(size, "sets", sparse(t, 1)), ""},
		"empty sets":       {repeated(size, "sets", `{}`), "the bound is"},
		"empty events":     {repeated(size, "events", `{}`), "the bound is"},
		"no events":        {repeated(size, "events", `null`), "the bound is"},
		"empty probes":     {repeated(size, "probes", `{}`), "the bound is"},
		"empty deliveries": {repeated(size, "bindings", `{}`), "the bound is"},
		"empty clocks":     {repeated(size, "clocks", `{}`), "the bound is"},
		"empty gaps":       {repeated(size, "gaps", `{}`), "the bound is"},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var s Snapshot
		err := json.Unmarshal(c.body, &s)
		m := NewMerged()
		if err == nil {
			m.Add(s)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		held := int(after.HeapAlloc) - int(before.HeapAlloc)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: want %q", what, err, c.want)
		}
		if made := int(after.TotalAlloc - before.TotalAlloc); held > maxHeld*len(c.body) || made > maxMade*len(c.body) {
			t.Errorf("%s: of %d bytes %d are held, and %d were made", what, len(c.body), held, made)
		}
		runtime.KeepAlive(s)
		runtime.KeepAlive(m)
	}
}

func TestElementsAreCountedAsTheyAre(t *testing.T) {
	for text, want := range map[string]int{`null`: 0, `[]`: 0, `[ ]`: 0, `[1]`: 1, `[ null , {} ]`: 2,
		`["a,b]","\",\\",{"x":[1,2,{"y":","}]}]`: 3, `[[]]`: 1, `[{"a":1,"b":2}]`: 1} {
		if n := elements([]byte(text)); n != want {
			t.Errorf("%s has %d elements, want %d", text, n, want)
		}
	}
}

// FuzzSnapshot decodes any input as a snapshot. The result is an error, or a snapshot that can be encoded and decoded
// again without a difference.
func FuzzSnapshot(f *testing.F) {
	hist := dense(f)
	for _, body := range [][]byte{repeated(200, "windows", `{}`), repeated(300, "windows", `{"index":1,"start":1}`),
		repeated(0, "windows", `{"index":1,"start":1,"hists":{"publish":`+hist+`}}`),
		repeated(0, "sets", sparse(f, 3)), repeated(100, "events", `null`), []byte(`{"windows":[null]}`),
		[]byte(`{"windows":null,"sets":[{"kind":"sent","publisher":0,"pages":"AAA="}]}`),
		[]byte(`{"windows":[{"hists":{"publish":null}}]}`),
		[]byte(`{"windows":[{"hists":{"publish":""}}],"host":{"at":1}}`), []byte(`null`)} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var s, again Snapshot
		if json.Unmarshal(body, &s) != nil {
			return
		}
		first, err := json.Marshal(s)
		if err != nil {
			return // for example years after 9999
		}
		if err := json.Unmarshal(first, &again); err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s\n%s\n%v", first, second, err)
		}
		NewMerged().Add(s)
	})
}

// TestImpossibleTimesAreNotDecoded covers readers of records of other people, which may contain any time.
func TestImpossibleTimesAreNotDecoded(t *testing.T) {
	for _, text := range []string{
		`{"lastSend":9000000000000000000}`, `{"at":-260000000000000}`, `{"windows":[{"index":9223372036854775807}]}`,
		`{"windows":[{"index":-300000}]}`,
	} {
		var s Snapshot
		if err := json.Unmarshal([]byte(text), &s); err == nil || !strings.Contains(err.Error(), "72h0m0s") {
			t.Errorf("%s: %v, want an error with the maximum time", text, err)
		}
	}
	var s Snapshot
	if err := json.Unmarshal([]byte(`{"lastSend":250000000000000,"windows":[{"index":250000}]}`), &s); err != nil {
		t.Errorf("a time of less than %v: %v", MaxTime, err)
	}
}
