package matrix

import "testing"

// TestValidMatrices covers matrices that earlier versions rejected by mistake.
func TestValidMatrices(t *testing.T) {
	for name, text := range map[string]string{
		"a list that refers to what the template leaves out": `
			name: "x", brokers: b: driver: "fake"
			cell: {publishers: {threads: _, profile: [{for: "1s", rate: 100 * publishers.threads}]}, groups: g: {}}`,
		"an axis called groups": `
			name: "x", brokers: b: driver: "fake", axes: {group: [1, 2], groups: [1]}
			cell: {axis: _, labels: {group: axis.group, groups: axis.groups}}`,
		"axis in options": `
			name: "x", brokers: b: {driver: "fake", _a: {axis: {n: "fake://"}, url: axis.n}, options: url: _a.url}`,
		"axis in a for": `
			name: "x", brokers: b: driver: "fake"
			cell: faults: [for axis in [{n: "1s"}] {at: axis.n, kind: "cut", for: axis.n}]`,
		"axis in a let": `
			name: "x", brokers: b: driver: "fake"
			cell: {let axis = {n: 5}, publishers: threads: axis.n}`,
	} {
		m, err := Load("m.cue", []byte(text), Narrow{})
		if err == nil {
			_, err = m.Run(t.Context())
		}
		if err != nil {
			t.Errorf("%s:\n%v", name, err)
		}
	}
}
