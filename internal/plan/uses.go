package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Uses returns the resources that the run accesses on a host and in its network, one per line, sorted. These are
// brokers with all options, references to secrets, payload files, and the InfluxDB. Secrets are not hidden, because the
// reader decides whether to execute another user's run. It reads and resolves nothing.
func (r Run) Uses() []string {
	lines := map[string]bool{}
	texts := func(name, driver, via string, options any) {
		var all []string
		eachValue(options, "", func(field, s string) { all = append(all, field+"="+s) })
		if via != "" {
			all = append(all, "via="+via)
		}
		slices.Sort(all)
		line := strings.Join(all, " ")
		lines[fmt.Sprintf("%s (%s): %s", name, driver, line)] = true
		for _, found := range reference.FindAllString(line, -1) {
			lines["secret "+found] = true
		}
	}
	known := map[string]bool{}
	for _, c := range r.Cells {
		for _, part := range (Task{Cell: c}).Parts() {
			b := part.Cell.Broker
			if file := part.Cell.Workload.Message.Payload.File; file != "" {
				lines["payload file "+file] = true
			}
			key := fmt.Sprintf("%q %q %q %s", b.Name, b.Driver, b.Via, b.Options)
			if known[key] {
				continue
			}
			known[key] = true
			options, err := decode(b.Options)
			if err != nil {
				options = string(b.Options)
			}
			texts("broker "+b.Name, b.Driver, b.Via, options)
		}
	}
	if i := r.Influx; i != nil {
		texts("points", "InfluxDB", "", map[string]any{"url": i.URL, "org": i.Org, "bucket": i.Bucket,
			"token": i.Token})
	}
	return slices.Sorted(maps.Keys(lines))
}

// eachValue calls f for every string, number and boolean in a tree, as text, with the path of its field.
func eachValue(tree any, path string, f func(path, s string)) {
	switch x := tree.(type) {
	case nil:
	case []any:
		for _, v := range x {
			eachValue(v, path, f)
		}
	case map[string]any:
		for k, v := range x {
			eachValue(v, strings.TrimPrefix(path+"."+k, "."), f)
		}
	default:
		f(path, fmt.Sprint(x))
	}
}
