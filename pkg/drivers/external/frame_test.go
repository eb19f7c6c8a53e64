package external

import (
	"bufio"
	"bytes"
	"runtime"
	"testing"
)

// FuzzReadFrame proves that any input is a frame within the limits that is encoded again without a difference, or an
// error, without a panic.
func FuzzReadFrame(f *testing.F) {
	for _, seed := range [][]byte{nil, frameOf(`{"type":"ping"}`, ""), frameOf("{}", "body"), []byte("Hello, world\n"),
		{0, 0, 0, 2, 0, 0, 0, 9, '{', '}', 1},
		{0, 0, 0, 1, 0, 0, 0, 0, '{'}, {0, 16, 0, 1, 0, 0, 0, 0}, {0, 0, 0, 2, 4, 0, 0, 1, '{', '}'}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readFrame(bytes.NewReader(data), nil)
		if err != nil {
			return
		}
		if len(got.header) < 2 || len(got.header) > maxHeader || len(got.body) > maxBody {
			t.Fatalf("a header of %d and a body of %d bytes", len(got.header), len(got.body))
		}
		var again bytes.Buffer
		w := bufio.NewWriter(&again)
		if err := writeFrame(w, got.header, got.body); err != nil || w.Flush() != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Bytes(), data[:again.Len()]) {
			t.Fatalf("read %q and wrote %q", data, again.Bytes())
		}
	})
}

// FuzzHear proves that no header causes a panic, a hang or unlimited allocation.
func FuzzHear(f *testing.F) {
	for _, seed := range []string{`{}`, `{"type":"done","id":1}`, `{"type":"taken","publisher":1,"count":-1}`,
		`{"type":"confirm","publisher":1,"numbers":[[0,18446744073709551615]]}`,
		`{"type":"confirm","publisher":1,"numbers":[[1,0]]}`,
		`{"type":"deliver","consumer":2,"deliveries":[[4294967295,9,0]]}`, `{"type":"closed","consumer":2}`, `{"type":"closed","conn":3}`,
		`{"type":"closed","publisher":1}`, `{"type":"return","publisher":1}`, `{"type":"event"}`, `{"type":"forward"}`,
		`{"type":"confirm","publisher":1,"numbers":[[0,1]],"kind":"rejected"}`} {
		f.Add([]byte(seed), []byte("body"))
	}
	f.Fuzz(func(t *testing.T, header, body []byte) {
		var before, after runtime.MemStats
		l := &link{out: newOutbox(), lastHandle: 3}
		c := &conn{link: l, id: 3}
		l.parts = map[uint64]part{1: &publisher{conn: c, id: 1, spec: newLedger().spec(), taken: make(chan struct{}, 1)},
			2: &consumer{conn: c, id: 2, arrived: make(chan struct{}, 1)}, 3: c}
		runtime.ReadMemStats(&before)
		_ = l.receive(frame{header, body})
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20+100*uint64(len(header)) {
			t.Fatalf("%d bytes of header allocate %d", len(header), used)
		}
	})
}
