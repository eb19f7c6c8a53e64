package record

import (
	"bytes"
	"encoding/base64"
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

// TestMemoryIsAnUpperBound adds many small snapshots that unpack to much memory, and compares the result of Memory with
// the heap. A repetition of the same parts uses almost no further memory.
func TestMemoryIsAnUpperBound(t *testing.T) {
	hist := dense(t)
	set := func(kind string, publisher, subscription, pages int, page string) string {
		data := strings.Repeat(page, pages)
		return fmt.Sprintf(`{"kind":%q,"publisher":%d,"subscription":%d,"pages":%q}`, kind, publisher, subscription,
			base64.StdEncoding.EncodeToString([]byte(data)))
	}
	const runs, all = "\x00\x03\x00\x00", "\x00\x00"
	for what, c := range map[string]struct {
		add    func(n int) string // part of snapshot n
		factor float64            // maximum factor between Memory and the heap
	}{
		"dense histograms": {func(n int) string {
			return repeatedPart(20, "windows", func(i int) string {
				return fmt.Sprintf(`{"index":%d,"hists":{"publish":%s}}`, 20*n+i, hist)
			})
		}, 2},
		"empty histograms": {func(n int) string {
			return repeatedPart(200, "windows", func(i int) string {
				return fmt.Sprintf(`{"index":%d,"hists":{"publish":"AQAAAAA=","pacing":"AQAAAAA="}}`, 200*n+i)
			})
		}, 3},
		"windows": {func(n int) string {
			return repeatedPart(500, "windows", func(i int) string { return fmt.Sprintf(`{"index":%d}`, 500*n+i) })
		}, 3},
		"flows": {func(n int) string {
			return fmt.Sprintf(`"windows":[{"index":%d,"published":[%s1]}]`, n, strings.Repeat("1,", 1000))
		}, 3},
		"sparse pages": {func(n int) string { return `"sets":[` + set("received", n, 0, 5_000, runs) + `]` }, 2},
		"full pages":   {func(n int) string { return `"sets":[` + set("received", n, 0, 16_000, all) + `]` }, 3},
		"publishers": {func(n int) string {
			return repeatedPart(500, "sets", func(i int) string { return set("received", 500*n+i, 0, 1, all) })
		}, 4},
		"subscriptions": {func(n int) string {
			return repeatedPart(500, "sets", func(i int) string { return set("received", 0, 500*n+i, 1, all) })
		}, 3},
		"bindings": {func(n int) string {
			return repeatedPart(500, "bindings", func(i int) string { return fmt.Sprintf(`{"binding":%d,"called":1}`, 500*n+i) })
		}, 6},
		"events": {func(int) string {
			return repeatedPart(500, "events", func(int) string { return `{"at":1,"kind":"x"}` })
		}, 6},
		"gaps":   {func(int) string { return repeatedPart(500, "gaps", func(int) string { return `{"owner":1,"from":1}` }) }, 6},
		"hosts":  {func(int) string { return `"host":{"at":1}` }, 10},
		"agents": {func(n int) string { return fmt.Sprintf(`"agent":"a%d","clock":"x","skew":1,"host":{"at":1}`, n) }, 10},
	} {
		m := NewMerged()
		one := func(n int, group string) {
			var s Snapshot
			text := fmt.Sprintf(`{"agent":"a","seq":%d,"group":%q,%s}`, n+1, group, c.add(n))
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			m.Add(s)
		}
		heap := func() int {
			var now runtime.MemStats
			for range 3 { // also empties the pools
				runtime.GC()
			}
			runtime.ReadMemStats(&now)
			return int(now.HeapAlloc)
		}
		before := heap()
		snapshots := 5
		if what == "hosts" || what == "agents" {
			snapshots = 2000
		}
		for n := range snapshots {
			one(n, "")
			one(n+snapshots, "group")
		}
		held, memory := heap()-before, m.Memory()
		if memory < held || float64(memory) > c.factor*float64(held) {
			t.Errorf("%s: %d bytes are held, and the bound is %d", what, held, memory)
		}
		t.Logf("%s: %d bytes are held, and the bound is %d", what, held, memory)
	}

	m := NewMerged()
	var s Snapshot
	text := fmt.Sprintf(`{"windows":[{"index":1,"hists":{"publish":%s}}],"sets":[%s]}`, hist,
		set("received", 0, 0, 1000, runs))
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	m.Add(s)
	once := m.Memory()
	for s.Seq = range 100 {
		m.Add(s)
	}
	if again := m.Memory(); again > once+100*memorySnapshot+memoryHist+2*histBlocks*blockSize {
		t.Errorf("the bound is %d for a snapshot, and %d for a hundred of the same second and pages", once, again)
	}
}

// repeatedPart returns a list of n elements as a field of a snapshot.
func repeatedPart(n int, name string, element func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = element(i)
	}
	return fmt.Sprintf("%q:[%s]", name, strings.Join(all, ","))
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
