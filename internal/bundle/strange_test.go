package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// mutants calls made with copies of a document in which one value is removed or replaced by an invalid one.
func mutants(document any, made func(where string, mutant []byte)) {
	var visit func(where string, value any, put func(any))
	visit = func(where string, value any, put func(any)) {
		for _, strange := range []any{nil, -1, 1 << 40, "x", []any{}, []any{map[string]any{}}} {
			put(strange)
			text, err := json.Marshal(document)
			if err != nil {
				panic(err)
			}
			made(fmt.Sprintf("%s = %v", where, strange), text)
		}
		put(value)
		switch v := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				visit(where+"."+key, v[key], func(x any) { v[key] = x })
			}
		case []any:
			for i := range v {
				visit(fmt.Sprintf("%s[%d]", where, i), v[i], func(x any) { v[i] = x })
			}
		}
	}
	visit("", document, func(x any) { document = x })
}

// A message is valid UTF-8, also if it shortens a text within a character.
func TestShortenedTextsAreUTF8(t *testing.T) {
	for n := range 3 {
		before, want := strings.Repeat("x", 77+n), strings.Repeat("x", 77+n)+"…"
		if n == 0 { // the character ends at the limit of 80 bytes
			want = before + "€…"
		}
		if got := clip(before + "€uro"); got != want {
			t.Errorf("%d bytes before a character of 3 bytes: %q, want %q", len(before), got, want)
		}
	}
}

// A forged bundle may have any plan with right digests. verify reports an error and does not panic.
func TestUnusualPlansDoNotEndVerify(t *testing.T) {
	data := made(t, recordedRun(t))
	b, err := Open(bytes.NewReader(data), int64(len(data)), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if faults, err := b.Unpack(dir); err != nil || len(faults) > 0 {
		t.Fatal(err, faults)
	}
	file := filepath.Join(dir, runDir, "run.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var plan any
	if err := json.Unmarshal(text, &plan); err != nil {
		t.Fatal(err)
	}
	tried := 0
	mutants(plan, func(where string, mutant []byte) {
		tried++
		if err := os.WriteFile(file, mutant, 0o600); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("%s: %v\n%s", where, r, debug.Stack())
			}
		}()
		c := check{v: &Verification{Manifest: b.Manifest}, dir: dir}
		if err := c.run(t.Context(), b); err != nil && !errors.Is(err, ErrAltered) {
			t.Errorf("%s: %v", where, err)
		}
	})
	if tried < 500 {
		t.Errorf("%d plans were tried: the walk is not what this test expects", tried)
	}
}
