package external

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// description is the answer of a process to hello. It is read once, so that Declare needs no process.
type description struct {
	Protocol int    `json:"protocol"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	Doc      string `json:"doc"`
	Schema   string `json:"schema"`
	Flushes  bool   `json:"flushes"` // the driver buffers messages, and is to receive flushes
	Declares []rule `json:"declares"`
	// Metrics are those that probe may return. A shared metric needs only its name.
	Metrics []drivers.MetricInfo `json:"metrics"`
}

// rule is a part of a driver's declaration. All rules whose When holds are applied in order. The fields that a rule
// sets replace earlier values; Rejections and Notes are appended.
type rule struct {
	When         map[string]json.RawMessage `json:"when"`
	Modes        []drivers.Mode             `json:"modes"`
	Acks         []drivers.Ack              `json:"acks"`
	Capabilities json.RawMessage            `json:"capabilities"`
	Guarantees   json.RawMessage            `json:"guarantees"`
	// a duration like "30s", or an option that contains one: "options.ackWait"
	Redeliver  string             `json:"redeliverAfter"`
	Resilience drivers.Resilience `json:"resilience"`
	Label      string             `json:"label"`
	Rejections []string           `json:"rejections"`
	Notes      []string           `json:"notes"`
}

// capabilities are the fields of drivers.Capabilities that a rule may set.
type capabilities struct {
	Mandatory, Persistent, Transient, UnlimitedPrefetch, Subscriptions, Bindings, Churn, Nodes, Keys, Redelivery,
	Streams bool
}

func readDescription(raw json.RawMessage) (description, error) {
	var d description
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return d, fmt.Errorf("read description: %w", err)
	}
	for i, m := range d.Metrics {
		if common, is := drivers.SharedMetric(m.Name); is && m == (drivers.MetricInfo{Name: m.Name}) {
			d.Metrics[i] = common
		}
	}
	return d, d.check()
}

// check returns all errors of the description.
func (d *description) check() error {
	var errs []error
	wrong := func(format string, a ...any) { errs = append(errs, fmt.Errorf("description: "+format, a...)) }
	if d.Protocol != protocol {
		wrong("it uses protocol %d, and this is %d", d.Protocol, protocol)
	}
	if d.Doc == "" {
		wrong("doc is empty; give one or two sentences for people")
	}
	if !strings.Contains(d.Schema, "#Options") {
		wrong("schema does not define #Options")
	}
	if len(d.Declares) == 0 || len(d.Declares[0].When) > 0 || d.Declares[0].Label == "" ||
		len(d.Declares[0].Modes) == 0 || len(d.Declares[0].Acks) == 0 {
		wrong("declares has to begin with a rule without when that has modes, acks and a label")
	}
	for i, r := range d.Declares {
		for _, err := range r.check() {
			wrong("declares[%d]: %w", i, err)
		}
	}
	if err := drivers.CheckMetrics(d.Metrics); err != nil {
		wrong("metrics: %w", err)
	}
	return errors.Join(errs...)
}

func (r *rule) check() (errs []error) {
	known := fields(drivers.Use{})
	for _, name := range slices.Sorted(maps.Keys(r.When)) {
		if _, is := known[name]; !is && !strings.HasPrefix(name, "options.") {
			errs = append(errs, fmt.Errorf("when: there is no %q (available: %s, and options.NAME)", name,
				strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
		}
		if _, err := readTest(r.When[name]); err != nil {
			errs = append(errs, fmt.Errorf("when: %s: %w", name, err))
		}
	}
	for _, m := range r.Modes {
		if !slices.Contains(drivers.Modes(), m) {
			errs = append(errs, fmt.Errorf("modes: there is no %q (available: %v)", m, drivers.Modes()))
		}
	}
	acks := []drivers.Ack{drivers.AckEach, drivers.AckEvery, drivers.AckInterval, drivers.AckAutomatic}
	for _, a := range r.Acks {
		if !slices.Contains(acks, a) {
			errs = append(errs, fmt.Errorf("acks: there is no %q (available: %v)", a, acks))
		}
	}
	all := []drivers.Resilience{drivers.NoResilience, drivers.ByLibrary, drivers.ByGuide}
	if r.Resilience != "" && !slices.Contains(all, r.Resilience) {
		errs = append(errs, fmt.Errorf("resilience: there is no %q (available: %v)", r.Resilience, all))
	}
	if err := overlay(r.Capabilities, &capabilities{}); err != nil {
		errs = append(errs, fmt.Errorf("capabilities: %w", err))
	}
	if err := overlay(r.Guarantees, &drivers.Guarantees{}); err != nil {
		errs = append(errs, fmt.Errorf("guarantees: %w", err))
	}
	if _, named := strings.CutPrefix(r.Redeliver, "options."); r.Redeliver != "" && !named {
		if _, err := durationOf(r.Redeliver); err != nil {
			errs = append(errs, fmt.Errorf("redeliverAfter: %w", err))
		}
	}
	return errs
}

// durationOf converts text like "30s", or a number of seconds, to a duration.
func durationOf(value any) (time.Duration, error) {
	var d time.Duration
	var err error
	switch v := value.(type) {
	case float64:
		d = time.Duration(v * float64(time.Second))
	case string:
		d, err = time.ParseDuration(v)
	default:
		err = errors.New("no duration")
	}
	if err != nil || d < 0 {
		return 0, fmt.Errorf(`invalid duration %v: write it like "30s"`, value)
	}
	return d, nil
}

// overlay decodes raw into onto. Fields that raw does not contain keep their values.
func overlay(raw json.RawMessage, onto any) error {
	if len(raw) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(onto)
}

// declare applies the rules. It needs no process.
func (d *description) declare(options json.RawMessage, use drivers.Use) drivers.Declaration {
	var set any
	if err := json.Unmarshal(options, &set); err != nil {
		return drivers.Declaration{Rejections: []string{"read options: " + err.Error()}}
	}
	facts := fields(use)
	out := drivers.Declaration{Resilience: drivers.NoResilience}
	for _, r := range d.Declares {
		if !r.holds(facts, set) {
			continue
		}
		if r.Modes != nil {
			out.Capabilities.Modes = slices.Clone(r.Modes)
		}
		if r.Acks != nil {
			out.Capabilities.Acks = slices.Clone(r.Acks)
		}
		out.Label, out.Resilience = cmp.Or(r.Label, out.Label), cmp.Or(r.Resilience, out.Resilience)
		if path, named := strings.CutPrefix(r.Redeliver, "options."); named {
			var err error
			if out.RedeliverAfter, err = durationOf(at(set, strings.Split(path, "."))); err != nil {
				out.Rejections = append(out.Rejections, fmt.Sprintf("redeliverAfter %s: %v", r.Redeliver, err))
			}
		} else if r.Redeliver != "" {
			out.RedeliverAfter, _ = durationOf(r.Redeliver) // checked by check
		}
		_, _ = overlay(r.Capabilities, &out.Capabilities), overlay(r.Guarantees, &out.Guarantees) // checked by check
		out.Rejections, out.Notes = append(out.Rejections, r.Rejections...), append(out.Notes, r.Notes...)
	}
	out.Capabilities.CopiesBody = true // the body is copied into a frame
	if use.Consumers > 0 && use.Ack == drivers.AckAutomatic {
		// Lockstep drops the deliveries that wait for the handler when a consumer stops.
		out.Guarantees.ConfirmedKept, out.Guarantees.SentKept = false, false
	}
	return out
}

func (r *rule) holds(facts map[string]any, options any) bool {
	for name, raw := range r.When {
		value := facts[name]
		if path, of := strings.CutPrefix(name, "options."); of {
			value = at(options, strings.Split(path, "."))
		}
		if test, err := readTest(raw); err != nil || !test.holds(value) {
			return false
		}
	}
	return true
}

// test is a condition on one value: one of a list, or a number within exclusive bounds.
type test struct {
	among        []any
	above, below *float64
}

func readTest(raw json.RawMessage) (test, error) {
	var one any
	if err := json.Unmarshal(raw, &one); err != nil {
		return test{}, err
	}
	switch v := one.(type) {
	case []any:
		return test{among: v}, nil
	case map[string]any:
		var t struct{ Above, Below *float64 }
		if err := overlay(raw, &t); err != nil || (t.Above == nil && t.Below == nil) {
			return test{}, errors.New(`want a value, a list of values, or {"above": n, "below": n}`)
		}
		return test{above: t.Above, below: t.Below}, nil
	}
	return test{among: []any{one}}, nil
}

func (t test) holds(value any) bool {
	if t.above == nil && t.below == nil {
		return slices.ContainsFunc(t.among, func(want any) bool { return reflect.DeepEqual(want, value) })
	}
	n, is := value.(float64)
	return is && (t.above == nil || n > *t.above) && (t.below == nil || n < *t.below)
}

// at returns the value at a path of options, or nil if there is none.
func at(tree any, path []string) any {
	for _, name := range path {
		object, _ := tree.(map[string]any)
		tree = object[name]
	}
	return tree
}

// fields returns the values of a use by name, with the types of decoded JSON.
func fields(u drivers.Use) map[string]any {
	return map[string]any{
		"mode": string(u.Mode), "maxInFlight": float64(u.MaxInFlight), "persistent": u.Persistent,
		"mandatory": u.Mandatory, "ack": string(u.Ack),
		"prefetch": float64(u.Prefetch),
		"queues":   float64(u.Queues), "subscriptions": float64(u.Subscriptions), "bindings": float64(u.Bindings),
		"publishers": float64(u.Publishers), "consumers": float64(u.Consumers), "churn": u.Churn, "keys": u.Keys,
		"nack":      u.Nack,
		"simulated": u.Simulated, "isolated": u.Isolated, "publisherNode": string(u.PublisherNode), "consumerNode": string(u.ConsumerNode),
		"queueNode": string(u.QueueNode),
	}
}
