package matrix

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/token"

	"lockstep/internal/plan"
	"lockstep/pkg/drivers"
)

// readBrokers reads the field brokers and holds each one's options against its driver's schema.
func (l *loader) readBrokers() {
	it, err := l.root.LookupPath(cue.ParsePath("brokers")).Fields()
	if err != nil {
		return // reported by the check
	}
	for it.Next() {
		name := it.Selector().Unquoted()
		l.brokers[name] = l.readBroker(name, it.Value())
	}
	if len(l.brokers) == 0 {
		l.add(place(l.root.LookupPath(cue.ParsePath("brokers"))), "brokers", `it is empty; give at least one, as in brokers: local: {driver: "nats", options: embedded: true}`)
	}
}

// readBroker returns nil for what has been reported.
func (l *loader) readBroker(name string, v cue.Value) *plan.Broker {
	path := join("brokers", name)
	driver := v.LookupPath(cue.ParsePath("driver"))
	wanted, err := driver.String()
	if err != nil {
		return nil
	}
	d, err := drivers.Lookup(wanted)
	if err != nil {
		l.add(place(driver), path+".driver", noDriver(wanted))
		return nil
	}
	before := len(l.faults)
	b := &plan.Broker{Name: name, Driver: wanted}
	b.Options = l.readOptions(d.Info(), v.LookupPath(cue.ParsePath("options")), v, path+".options")
	b.Version, _ = v.LookupPath(cue.ParsePath("version")).String()
	b.Via, _ = v.LookupPath(cue.ParsePath("via")).String()
	process := v.LookupPath(cue.ParsePath("process"))
	if process.Exists() {
		text, err := process.MarshalJSON()
		if err != nil || json.Unmarshal(text, &b.Process) != nil {
			return nil // reported by the check
		}
	}
	if len(l.faults) > before {
		return nil
	}
	if d := d.Info().Declare(plan.Unfilled(b.Options), useOf(plan.Default())); len(d.Capabilities.Modes) == 0 {
		l.add(place(v), path+".options", strings.Join(d.Unfit, "; "))
		return nil
	}
	return b
}

func noDriver(name string) string {
	names := drivers.Names()
	msg := fmt.Sprintf("there is no driver %q here", name)
	if near := plan.Nearest(name, names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return msg + " (there are: " + strings.Join(names, ", ") + "); one in another language is named in a file of this host: --drivers FILE"
}

func (l *loader) noBroker(shown, name string) string {
	names := slices.Sorted(maps.Keys(l.brokers))
	msg := fmt.Sprintf("there is no broker %s", shown)
	if near := plan.Nearest(name, names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return msg + " (there are: " + strings.Join(names, ", ") + ")"
}

// readOptions gives the options with the driver's defaults.
func (l *loader) readOptions(info drivers.Info, v, broker cue.Value, path string) json.RawMessage {
	schema := l.ctx.CompileString(info.Schema, cue.Filename("the schema of driver "+info.Name)).LookupPath(cue.ParsePath("#Options"))
	if schema.Err() != nil {
		l.add(place(v), path, "the schema of driver "+info.Name+" has a mistake: "+schema.Err().Error())
		return nil
	}
	whole := schema
	if v.Exists() {
		if v.Validate() != nil {
			return nil // reported by the check of the evaluation
		}
		whole = schema.Unify(v)
	}
	err := whole.Validate(cue.Concrete(true))
	if err == nil {
		text, err := whole.MarshalJSON()
		if err == nil {
			return text
		}
	}
	where := place(broker)
	if v.Exists() {
		where = place(v)
	}
	l.explainOptions(schema, v, path, err, where)
	return nil
}

// explainOptions reports what is wrong with options: in the words of the rules where these find it, else in CUE's.
func (l *loader) explainOptions(schema, v cue.Value, path string, err error, where token.Pos) {
	c := checker{}
	if v.Exists() {
		c.check(compile(schema), v, path)
	}
	if len(c.faults) == 0 {
		for _, f := range faultsOf(l.file, err) {
			f.Path = path + strings.TrimPrefix(f.Path, "#Options")
			if f.File != l.file && !strings.HasPrefix(f.File, setFile) {
				f = faultAt(where, f.Path, f.Message)
			}
			c.faults = append(c.faults, f)
		}
	}
	l.faults = append(l.faults, c.faults...)
}
