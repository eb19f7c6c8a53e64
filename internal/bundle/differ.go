package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"lockstep/internal/plan"
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hexOf(sum[:])
}

// text is the JSON of plain data.
func text(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return []byte("not JSON: " + err.Error()) // a number that is none
	}
	return data
}

// generic is v as JSON reads it, with numbers as they are written.
func generic(v any) any {
	d := json.NewDecoder(bytes.NewReader(text(v)))
	d.UseNumber()
	var out any
	if d.Decode(&out) != nil {
		return nil
	}
	return out
}

// differences says where two JSON trees differ, with both values.
func differences(at string, was, is any) []string {
	a, isMap := was.(map[string]any)
	b, both := is.(map[string]any)
	if isMap && both {
		names := map[string]bool{}
		for name := range a {
			names[name] = true
		}
		for name := range b {
			names[name] = true
		}
		var all []string
		for _, name := range sorted(names) {
			all = append(all, differences(strings.TrimPrefix(at+"."+name, "."), a[name], b[name])...)
		}
		return all
	}
	x, isList := was.([]any)
	y, both := is.([]any)
	if isList && both && len(x) == len(y) {
		var all []string
		for i := range x {
			all = append(all, differences(at+"["+strconv.Itoa(i)+"]", x[i], y[i])...)
		}
		return all
	}
	if reflect.DeepEqual(was, is) || string(text(was)) == string(text(is)) {
		return nil
	}
	return []string{fmt.Sprintf("%s: stored %s, recomputed %s", clip(at), clip(string(text(was))), clip(string(text(is))))}
}

// figure is a value as people compare it: every digit, and what is beside it.
func figure(v plan.Value) string {
	out := strconv.FormatFloat(v.Number, 'g', -1, 64)
	if v.NA != "" {
		out = "n/a (" + clip(v.NA) + ")"
	}
	if v.Bound != 0 {
		out += " ± " + strconv.FormatFloat(v.Bound, 'g', -1, 64)
	}
	if v.Over != 0 {
		out += fmt.Sprintf(", %d beyond the range", v.Over)
	}
	if len(v.Flags) > 0 {
		out += fmt.Sprintf(" %v", v.Flags)
	}
	return out
}

// firstLine finds the first line, from 1, in which two texts differ.
func firstLine(was, is string) (at int, a, b string, same bool) {
	if was == is {
		return 0, "", "", true
	}
	x, y := strings.Split(was, "\n"), strings.Split(is, "\n")
	for i := 0; ; i++ {
		switch {
		case i >= len(x):
			return i + 1, "", y[i], false
		case i >= len(y):
			return i + 1, x[i], "", false
		case x[i] != y[i]:
			return i + 1, x[i], y[i], false
		}
	}
}
