package matrix

import (
	"context"
	"testing"
)

const study = `package matrix

name: "async-vs-sync"
brokers: rabbit: {driver: "fake", options: url: "amqp://guest:guest@127.0.0.1:5672/"}
axes: {
	broker:  ["rabbit"]
	mode:    ["fire-and-forget", "confirm-window", "confirm-each", "connection-per-message"]
	threads: [1, 2, 3, 4, 5]
	latency: ["0ms", "1ms", "5ms", "50ms"]
}
skip: [{mode: "connection-per-message", latency: "50ms"}]     // CUE patterns; what they subsume is skipped
cell: {
	axis: _                                                   // filled with this combination
	publishers: {nodes: 1, threads: axis.threads, mode: axis.mode, window: 10_000}
	measure: "30s"
}
short: {axes: threads: [1, 5], cell: measure: "3s"}           // what --short replaces, before evaluation
tables: [{split: ["broker"], rows: ["mode", "threads"], columns: ["latency"], values: ["send.rate"]}]
`

func TestX(t *testing.T) {
	m, err := Load("m.cue", []byte(study), Narrow{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d %d %+v", len(r.Cells), len(r.Excluded), r.Cells[7])
	t.Logf("%+v", r.Excluded[0])
}
