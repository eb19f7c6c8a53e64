package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"sync"
)

// idVersion is the version of the canonical form below. Changing the form gives every cell of every history a new id.
const idVersion = "cell-2"

// CellID is a hash of the workload, defaults omitted, and the broker's name. Endpoints, options, secrets, versions,
// repeats and tables do not enter, so that history outlives a new release of the broker or of Lockstep; neither do
// axes' names. A field that is added later does not change ids as long as it has its default.
func CellID(broker string, w Workload) string {
	canonical := without(generic(w), defaults())
	if len(w.Groups) > 0 {
		canonical["groups"] = canonicalGroups(w.Groups)
	}
	text, err := json.Marshal([]any{idVersion, broker, canonical}) // keys sorted by encoding/json
	if err != nil {
		panic("plan: workload does not marshal: " + err.Error()) // plain data always does
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// canonicalGroups is the groups by their names, defaults omitted, and what drivers say of them too.
func canonicalGroups(groups []Group) map[string]any {
	out := map[string]any{}
	for _, g := range groups {
		whole := generic(Workload{}.With(g))
		parts := map[string]any{}
		for _, name := range []string{"publishers", "consumers", "topology", "message"} {
			parts[name] = whole[name]
		}
		canonical := without(parts, defaults())
		if g.Broker != nil {
			canonical["broker"] = g.Broker.Name
		}
		out[g.Name] = canonical
	}
	return out
}

// defaults is read only.
var defaults = sync.OnceValue(func() map[string]any { return generic(Default()) })

func generic(w Workload) map[string]any {
	text, err := json.Marshal(w)
	if err != nil {
		panic("plan: workload does not marshal: " + err.Error())
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		panic("plan: workload does not unmarshal: " + err.Error())
	}
	return m
}

// without returns v less all that is equal in defaults.
func without(v, defaults map[string]any) map[string]any {
	out := map[string]any{}
	for key, x := range v {
		d, had := defaults[key]
		sub, isMap := x.(map[string]any)
		subDefault, wasMap := d.(map[string]any)
		switch {
		case isMap && wasMap:
			if rest := without(sub, subDefault); len(rest) > 0 {
				out[key] = rest
			}
		case had && reflect.DeepEqual(x, d):
		default:
			out[key] = x
		}
	}
	return out
}
