package matrix

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// readBrokers reads the field brokers, and validates the options of each with its driver's schema.
func (l *loader) readBrokers() {
	it, err := l.doc.root.LookupPath(cue.ParsePath("brokers")).Fields()
	if err != nil {
		return // reported by the validation
	}
	for it.Next() {
		name := it.Selector().Unquoted()
		l.brokers[name] = l.readBroker(name, it.Value())
	}
	if len(l.brokers) == 0 {
		l.doc.add(place(l.doc.root.LookupPath(cue.ParsePath("brokers"))), "brokers",
			`it is empty; give at least one, as in brokers: local: {driver: "nats", options: embedded: true}`)
	}
}

// readBroker returns nil if it reported an error.
func (l *loader) readBroker(name string, v cue.Value) *plan.Broker {
	path := join("brokers", name)
	driver := v.LookupPath(cue.ParsePath("driver"))
	wanted, err := driver.String()
	if err != nil {
		return nil
	}
	d, err := drivers.Lookup(wanted)
	if err != nil {
		l.doc.add(place(driver), path+".driver", noDriver(wanted))
		return nil
	}
	l.metrics = l.metrics.Join(d.Info().Metrics...)
	before := len(l.doc.errors)
	b := &plan.Broker{Name: name, Driver: wanted}
	l.readOptions(b, d.Info(), v)
	b.Version, _ = v.LookupPath(cue.ParsePath("version")).String()
	b.Via, _ = v.LookupPath(cue.ParsePath("via")).String()
	l.secrets = append(l.secrets, plan.SecretsOf(path+".via", b.Via, false)...)
	process := v.LookupPath(cue.ParsePath("process"))
	if process.Exists() {
		text, err := process.MarshalJSON()
		if err != nil || json.Unmarshal(text, &b.Process) != nil {
			return nil // reported by the validation
		}
	}
	if len(l.doc.errors) > before {
		return nil
	}
	if d := d.Info().Declare(plan.Unfilled(b.Options), useOf(plan.Default())); len(d.Capabilities.Modes) == 0 {
		l.doc.add(place(v), path+".options", strings.Join(d.Rejections, "; "))
		return nil
	}
	return b
}

func noDriver(name string) string {
	names := drivers.Names()
	return fmt.Sprintf("unknown driver %q", name) + plan.DidYouMean(name, names) +
		" (available: " + strings.Join(names, ", ") +
		"); for a driver in another language pass --drivers FILE"
}

// noBroker returns the error of a broker that does not exist. shown is its name as the matrix writes it.
func noBroker(brokers map[string]*plan.Broker, shown, name string) string {
	return fmt.Sprintf("unknown broker %s", shown) + plan.DidYouMean(name, slices.Sorted(maps.Keys(brokers))) +
		brokersThere(brokers)
}

func brokersThere(brokers map[string]*plan.Broker) string {
	return " (available: " + strings.Join(slices.Sorted(maps.Keys(brokers)), ", ") + ")"
}

// readOptions reads the options, with the driver's defaults, and the paths of those that are secret.
func (l *loader) readOptions(b *plan.Broker, info drivers.Info, broker cue.Value) {
	v, path := broker.LookupPath(cue.ParsePath("options")), join("brokers", b.Name)+".options"
	schema := l.doc.ctx.CompileString(info.Schema,
		cue.Filename("the schema of driver "+info.Name)).LookupPath(cue.ParsePath("#Options"))
	if schema.Err() != nil {
		l.doc.add(place(v), path, "the schema of driver "+info.Name+" is invalid: "+schema.Err().Error())
		return
	}
	whole := schema
	if v.Exists() {
		whole = schema.Unify(v)
	} else {
		v = l.doc.ctx.CompileString("{}", cue.Filename(inheritedFile))
	}
	l.findSecrets(b, whole, path, "", false)
	x := validator{fallback: place(broker)}
	if x.validate(schema, v, path); len(x.errors) == 0 {
		var err error
		if b.Options, err = whole.MarshalJSON(); err != nil {
			x.add(v, path, err.Error())
		}
	}
	l.doc.errors = append(l.doc.errors, x.errors...)
}

// findSecrets finds the secret strings in options. The attribute @secret() marks a field and all its descendants, in a
// driver's schema or in the matrix. in is the path within the options, as in plan.Broker.Secret.
func (l *loader) findSecrets(b *plan.Broker, v cue.Value, path, in string, marked bool) {
	if attribute := v.Attribute("secret"); !marked && attribute.Err() == nil {
		marked = true
		b.Secret = append(b.Secret, in)
	}
	if text, err := v.String(); err == nil {
		l.secrets = append(l.secrets, plan.SecretsOf(path, text, marked)...)
	} else if items, err := v.List(); err == nil {
		for items.Next() {
			l.findSecrets(b, items.Value(), path, in, marked)
		}
	} else if fields, err := v.Fields(); err == nil {
		for fields.Next() {
			if at := fields.Selector(); at.IsString() { // an invalid matrix may have other kinds of fields
				l.findSecrets(b, fields.Value(), join(path, at.Unquoted()),
					strings.TrimPrefix(in+"."+at.Unquoted(), "."), marked)
			}
		}
	}
}
