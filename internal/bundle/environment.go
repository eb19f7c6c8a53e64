package bundle

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

// Environment is the agents and brokers of a run, from its outcomes.
type Environment struct {
	Server  string   `json:"server,omitempty"` // of the fleet; empty: a local run
	Agents  []Agent  `json:"agents"`
	Brokers []Broker `json:"brokers"`
}

// Agent is an agent on its host.
type Agent struct {
	Agent   string `json:"agent"`
	Host    string `json:"host"`
	Version string `json:"version"`         // of Lockstep
	Cores   int    `json:"cores,omitempty"` // of the host; 0: unknown
}

// Broker is a broker with its own description. A broker that changed during a run is there twice.
type Broker struct {
	Name    string       `json:"name"`
	Driver  string       `json:"driver"`
	Subject plan.Subject `json:"subject"`
}

// EnvironmentOf returns the environment of outcomes.
func EnvironmentOf(p plan.Run, outcomes []plan.Outcome) Environment {
	e := Environment{Server: p.Source.Server, Agents: []Agent{}, Brokers: []Broker{}}
	cells := map[string]plan.Cell{}
	for _, c := range p.Cells {
		cells[c.ID] = c
	}
	for _, o := range outcomes {
		cores := o.Cores()
		for _, a := range o.Agents {
			x := Agent{a.Agent, a.Host, a.Version, cores[a.Agent]}
			if !slices.Contains(e.Agents, x) {
				e.Agents = append(e.Agents, x)
			}
		}
		e.subjects(cells[o.Cell], o)
	}
	slices.SortFunc(e.Agents, func(a, b Agent) int {
		return cmp.Or(strings.Compare(a.Agent, b.Agent), strings.Compare(a.Host, b.Host),
			strings.Compare(a.Version, b.Version), cmp.Compare(a.Cores, b.Cores))
	})
	slices.SortStableFunc(e.Brokers, func(a, b Broker) int { return strings.Compare(a.Name, b.Name) })
	return e
}

func (e *Environment) subjects(c plan.Cell, o plan.Outcome) {
	own := map[string]*plan.Subject{}
	for _, g := range o.Groups {
		own[g.Name] = g.Subject
	}
	for _, part := range (plan.Task{Cell: c}).Parts() {
		b, s := part.Cell.Broker, o.Subject
		if of := own[part.Group]; of != nil {
			s = *of
		}
		known := func(x Broker) bool { return x.Name == b.Name && x.Subject.Fingerprint == s.Fingerprint }
		if !slices.ContainsFunc(e.Brokers, known) {
			e.Brokers = append(e.Brokers, Broker{b.Name, b.Driver, s})
		}
	}
}

// Differences describes how other differs from e: "broker rabbit: version 3.12, now 3.13". Brokers that other does not
// have are ignored.
func (e Environment) Differences(other Environment) []string {
	var all []string
	add := func(what, was, is string) {
		if was != is {
			all = append(all, what+": "+cmp.Or(was, "none")+", now "+cmp.Or(is, "none"))
		}
	}
	add("place of execution", cmp.Or(e.Server, "local"), cmp.Or(other.Server, "local"))
	add("Lockstep versions", each(e.Agents, func(a Agent) string { return a.Version }),
		each(other.Agents, func(a Agent) string { return a.Version }))
	add("hosts", each(e.Agents, Agent.host), each(other.Agents, Agent.host))
	for _, b := range e.Brokers {
		i := slices.IndexFunc(other.Brokers, func(x Broker) bool { return x.Name == b.Name })
		if i >= 0 {
			all = append(all, subjects(b, other.Brokers[i])...)
		}
	}
	return all
}

// subjects lists the differences between two descriptions of a broker.
func subjects(was, is Broker) []string {
	var all []string
	add := func(what, a, b string) {
		if a != b {
			all = append(all, "broker "+was.Name+": "+what+" "+cmp.Or(a, "none")+", now "+cmp.Or(b, "none"))
		}
	}
	a, b := was.Subject, is.Subject
	add("driver", was.Driver, is.Driver)
	add("product", a.Product, b.Product)
	add("version", a.Version, b.Version)
	add("label", a.Label, b.Label)
	add("endpoints", strings.Join(a.Endpoints, " "), strings.Join(b.Endpoints, " "))
	add("members", strings.Join(a.Members, " "), strings.Join(b.Members, " "))
	for _, name := range keys(a.Settings, b.Settings) {
		add("setting "+name, a.Settings[name], b.Settings[name])
	}
	return all
}

func (a Agent) host() string {
	if a.Cores == 0 {
		return a.Host
	}
	return a.Host + " (" + strconv.Itoa(a.Cores) + " cores)"
}

// each lists the distinct texts of agents.
func each(agents []Agent, of func(Agent) string) string {
	set := map[string]bool{}
	for _, a := range agents {
		if text := of(a); text != "" {
			set[text] = true
		}
	}
	return strings.Join(keys(set), ", ")
}

// Cells lists the differences between two plans: cells, repetitions, order and the options of brokers.
func Cells(then, now plan.Run) []string {
	var all []string
	ids := func(p plan.Run) map[string]plan.Cell {
		cells := map[string]plan.Cell{}
		for _, c := range p.Cells {
			cells[c.ID] = c
		}
		return cells
	}
	was, is := ids(then), ids(now)
	for _, c := range then.Cells {
		if _, has := is[c.ID]; !has {
			all = append(all, "cell "+c.Name()+": not in this run")
		}
	}
	for _, c := range now.Cells {
		if _, had := was[c.ID]; !had {
			all = append(all, "cell "+c.Name()+": not in the bundle")
		}
	}
	if then.Repeat != now.Repeat {
		all = append(all, "repetitions: "+strconv.Itoa(then.Repeat)+", now "+strconv.Itoa(now.Repeat))
	}
	if then.Order != now.Order {
		all = append(all, "order of the tasks")
	}
	return append(all, options(then, now.Redacted())...)
}

// options lists the changed options of brokers with the same name.
func options(then, now plan.Run) []string {
	before := map[string]plan.Broker{}
	for _, b := range then.Brokers() {
		before[b.Name] = b
	}
	var all []string
	for _, b := range now.Brokers() {
		old, had := before[b.Name]
		if !had {
			continue
		}
		for _, d := range differences("", generic(old.Options), generic(b.Options)) {
			all = append(all, "options of broker "+b.Name+": "+d.at+": "+d.was+", now "+d.is)
		}
	}
	return all
}

// keys returns the sorted distinct keys of maps.
func keys[V any](all ...map[string]V) (names []string) {
	for _, m := range all {
		names = slices.AppendSeq(names, maps.Keys(m))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

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
		for _, name := range keys(a, b) {
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
