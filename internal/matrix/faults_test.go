package matrix

import (
	"errors"
	"testing"
)

const tenMistakes = `package matrix

name: "ten mistakes"
brokers: {
	a: {driver: "fakke", options: {}}
	b: {driver: "fake", options: {replcas: 3, storage: "disk"}}
}
axes: {
	broker:  ["a", "bb"]
	mode:    ["confirm-eech", "fire-and-forget"]
	nodes:   [1, 2]
	threads: [-1, 1, 5]
	size:    [100, 10]
}
zip: [["nodes", "threads"]]
skip: [{mood: "fire-and-forget"}]
cell: {
	axis: _
	publishers: {windw: 5, batch: 0, node: axis.nodez}
	consumers: prefetch: -1
	message: size: axis.size
	measure: "30 seconds"
	mode: axis.mode
	drain: {silence: "70s", most: lots}
}
short: {axes: threads: [0, 1], cell: publishers: onFull: "drop"}
repeat: 0
repeets: 3
order: "random"
tables: [{rows: ["broker", "mode", "threds"], columns: ["size"], values: ["send.rat"]}, {values: ["sent"]}]
`

func TestTen(t *testing.T) {
	_, err := Load("m.cue", []byte(tenMistakes), Narrow{})
	var f Faults
	if !errors.As(err, &f) {
		t.Fatal(err)
	}
	t.Logf("%d\n%v", len(f), f)
}
