package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"sync"
)

// idVersion is the version of the canonical form. Changing the form changes the ids of all cells in all histories.
const idVersion = "cell-3"

// CellID returns a hash of the workload without defaults, and the broker's name. Endpoints, options, secrets, versions,
// repetitions, tables and names of axes are not part of it. History therefore remains valid for new releases of the
// broker and of Lockstep. A new field does not change ids while it has its default.
func CellID(broker string, w Workload) string {
	canonical := without(generic(w), defaults())
	if len(w.Groups) > 0 {
		canonical["groups"] = canonicalGroups(w.Groups)
	}
	text, err := json.Marshal([]any{idVersion, broker, canonical}) // encoding/json sorts keys
	if err != nil {
		panic("plan: workload does not marshal: " + err.Error()) // plain data always marshals
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// canonicalGroups returns the groups by name, without defaults and without the drivers' declarations.
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

// defaults must not be modified.
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

// without returns v without the fields that equal those in defaults.
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
