package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestDecodingCountsBeforeItAllocates decodes documents whose elements use up to a thousand times the memory of their
// text, and measures the allocations.
func TestDecodingCountsBeforeItAllocates(t *testing.T) {
	list := func(before, element, after string) string {
		size := MaxDocument
		if strings.Contains(element, "{") || element == "null" { // fewer of these use as much memory
			size /= 4
		}
		n := (size - len(before) - len(after)) / (len(element) + 1)
		return before + strings.Repeat(element+",", n-1) + element + after
	}
	for name, text := range map[string]string{
		"cells":           list(`{"cells":[`, `{}`, `]}`),
		"cells, in case":  list(`{"CELLS":[`, `{}`, `]}`),
		"cells, folded":   list(`{"cellſ":[`, `{}`, `]}`),
		"cells twice":     `{"cells":[{}],` + list(`"cells":[`, `{}`, `]}`),
		"null cells":      list(`{"cells":[`, `null`, `]}`),
		"groups":          list(`{"cells":[{"workload":{"groups":[`, `{}`, `]}}]}`),
		"brokers":         list(`{"cells":[{"workload":{"groups":[`, `{"broker":{}}`, `]}}]}`),
		"searches":        list(`{"cells":[`, `{"workload":{"search":{}}}`, `]}`),
		"labels":          list(`{"cells":[{"workload":{"labels":{`, `"a":""`, `}}}]}`),
		"excluded":        list(`{"excluded":[`, `{}`, `]}`),
		"tables":          list(`{"tables":[`, `{}`, `]}`),
		"strings":         list(`{"axes":[`, `""`, `]}`),
		"nested":          `{"cells":` + strings.Repeat("[", MaxDocument-20),
		"nested unknown":  `{"x":` + strings.Repeat(`{"x":`, MaxDocument/6),
		"too long":        `{"name":"` + strings.Repeat("x", MaxDocument) + `"}`,
		"many broken off": list(`{"cells":[`, `{}`, ``),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ReadRun(strings.NewReader(text), MaxDocument)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v: want ErrTooLarge", name, err)
		}
		// mostly tokens, which are freed at once
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<30 {
			t.Errorf("%s: %d MiB were allocated to refuse it", name, grown>>20)
		}
	}
}

// TestTasksAreCounted covers products of cells and repetitions.
func TestTasksAreCounted(t *testing.T) {
	for _, x := range []struct {
		cells, repeat int
		ok            bool
	}{{0, 1, true}, {0, 0, true}, {1, MaxTasks, true}, {1, MaxTasks + 1, false}, {2, MaxTasks/2 + 1, false},
		{1, -1, false}, {0, 1 << 40, false},
		{MaxCells, MaxTasks / MaxCells, true}, {MaxCells + 1, 1, false}, {3, 1<<63 - 1, false}} {
		cells := slices.Repeat([]Cell{{ID: "c"}}, x.cells)
		if err := (Run{Cells: cells, Repeat: x.repeat}).CheckShape(); (err == nil) != x.ok {
			t.Errorf("%d cells × %d: %v", x.cells, x.repeat, err)
		}
	}
}

// TestTheLargestRunIsRead proves that a run of the maximum number of cells in a message can be read, also indented.
func TestTheLargestRunIsRead(t *testing.T) {
	cell := Cell{ID: "3f9c2d81aa07", Workload: Default(),
		Broker:      Broker{Name: "b", Driver: "loopback", Options: json.RawMessage(`{}`)},
		Coordinates: []Coordinate{{Axis: "threads", Value: json.RawMessage(`1`)}}}
	run := Run{Version: RecordFormat, ID: "r", Repeat: 1}
	for range MaxCells {
		run.Cells = append(run.Cells, cell)
	}
	for _, indent := range []string{"", "  "} {
		text, err := json.MarshalIndent(run, "", indent)
		if indent == "" {
			text, err = json.Marshal(run)
		}
		if err != nil {
			t.Fatal(err)
		}
		limit := int64(MaxDocument)
		if indent != "" {
			limit = MaxFile
		}
		t.Logf("%d cells: %d bytes with indentation %q", MaxCells, len(text), indent)
		again, err := ReadRun(bytes.NewReader(text), limit)
		if err != nil || fmt.Sprint(again.Cells[MaxCells-1]) != fmt.Sprint(cell) {
			t.Errorf("indentation %q: %v", indent, err)
		}
	}
}
