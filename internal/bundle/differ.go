package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
)

func digest(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// generic returns v as decoded JSON, with numbers as json.Number.
func generic(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		return "not JSON: " + err.Error()
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out any
	if d.Decode(&out) != nil {
		return nil
	}
	return out
}

// nothing is the text of a value that a document does not have.
const nothing = "nothing"

// difference is a place where two JSON documents differ, with both values.
type difference struct{ at, was, is string }

// differences compares two values of generic. at is their path in the documents.
func differences(at string, was, is any) (all []difference) {
	within := func(name string) string {
		if at == "" {
			return name
		}
		return at + "." + name
	}
	a, isMap := was.(map[string]any)
	b, both := is.(map[string]any)
	if isMap && both {
		names := map[string]bool{}
		for _, m := range []map[string]any{a, b} {
			for name := range m {
				names[name] = true
			}
		}
		for _, name := range sorted(names) {
			all = append(all, differences(within(name), a[name], b[name])...)
		}
		return all
	}
	x, isList := was.([]any)
	y, both := is.([]any)
	if isList && both && len(x) == len(y) {
		for i := range x {
			all = append(all, differences(at+"["+strconv.Itoa(i)+"]", x[i], y[i])...)
		}
		return all
	}
	if first, second := written(was), written(is); first != second {
		all = append(all, difference{clip(at), clip(first), clip(second)})
	}
	return all
}

// written returns the text of a value of generic.
func written(v any) string {
	if v == nil {
		return nothing
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "not JSON: " + err.Error()
	}
	return string(text)
}
