package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
)

// Fact is a property that all rows of a run's tables share.
type Fact struct {
	Name string // empty: a further line of the fact before
	Text string
}

// Facts returns what is common to all tables of a run: brokers, the meaning of a confirm, the load, the durations and
// the hosts. A property that differs between cells is left out, except for brokers and the meanings of a confirm, which
// are listed.
func Facts(run plan.Run, outcomes []plan.Outcome) []Fact {
	b := newBuilder(run, outcomes)
	var facts []Fact
	add := func(name string, texts ...string) {
		texts = slices.DeleteFunc(texts, func(s string) bool { return s == "" })
		if len(texts) > 0 {
			facts = append(facts, Fact{name, strings.Join(texts, ", ")})
		}
	}
	list := func(name string, lines []string) {
		for _, line := range lines {
			add(name, line)
			name = ""
		}
	}
	list("Broker", brokerFacts(outcomes, run.Cells))
	list("Confirm", confirmMeanings(b.cells))
	list("Resilience", resilienceFacts(run.Cells))
	var works []plan.Workload
	for _, c := range run.Cells {
		works = append(works, c.Workload.Parts()...)
	}
	add("Load", same(works, agentsText), same(works, sizeText), same(works, rateText))
	add("Measurement", same(works, func(w plan.Workload) string {
		if w.Search != nil {
			return fmt.Sprintf("steps of %s, verified by measurements of %s", short(w.Search.Step), short(w.Measure))
		}
		if w.Publishers.Nodes == 0 {
			return "until no message arrives, at most " + short(w.Measure)
		}
		if w.Publishers.Count > 0 {
			return display.Decimals(float64(w.Publishers.Count), 0) + " messages per publisher"
		}
		return short(w.Measure)
	}), same(works, func(w plan.Workload) string {
		if w.Steady.Auto {
			return "after a warm-up until the load is steady"
		}
		if w.Warmup == 0 {
			return "without warm-up"
		}
		return "after a warm-up of " + short(w.Warmup)
	}), b.repeated())
	add("Host", hostFacts(run.Cells, outcomes))
	list("Ceiling", ceilingFacts(run.Ceilings))
	return facts
}

func short(d plan.Duration) string { return display.Seconds(time.Duration(d).Seconds()) }

// same returns the text of all workloads if it is the same; else empty.
func same(works []plan.Workload, text func(plan.Workload) string) string {
	if len(works) == 0 || slices.ContainsFunc(works, func(w plan.Workload) bool { return text(w) != text(works[0]) }) {
		return ""
	}
	return text(works[0])
}

func agentsText(w plan.Workload) string {
	publishers, consumers := w.Publishers.Nodes, w.Consumers.Nodes
	switch {
	case publishers == 0:
		return fmt.Sprintf("%s, no publishers", display.Count(consumers, "consuming agent"))
	case consumers == 0:
		return fmt.Sprintf("%s, no consumers", display.Count(publishers, "publishing agent"))
	case w.Consumers.Colocate:
		return display.Count(max(publishers, consumers), "publishing and consuming agent")
	}
	return fmt.Sprintf("%d publishing and %s", publishers, display.Count(consumers, "consuming agent"))
}

func sizeText(w plan.Workload) string {
	if w.Publishers.Nodes == 0 {
		return "messages of existing queues"
	}
	if len(w.Message.Sizes) > 0 {
		return "messages of different sizes"
	}
	return display.Bytes(float64(w.Message.Size)) + " messages"
}

func rateText(w plan.Workload) string {
	switch {
	case w.Publishers.Nodes == 0:
		return ""
	case w.Search != nil:
		return "rates of a capacity search"
	case len(w.Publishers.Profile) > 0:
		return "a rate profile"
	case w.Publishers.Rate > 0:
		return display.Number(w.Publishers.Rate) + " msg/s"
	}
	return maxRate
}

const maxRate = "as fast as possible"

// brokerFacts returns the product and version of each broker, as they were reported. Brokers with the same text share
// a line.
func brokerFacts(outcomes []plan.Outcome, cells []plan.Cell) (lines []string) {
	names, of := map[string][]string{}, map[string]string{}
	broker := map[string]plan.Cell{}
	for _, c := range cells {
		broker[c.ID] = c
	}
	see := func(name string, s plan.Subject) {
		text := strings.TrimSpace(s.Product + " " + s.Version)
		if s.Label != "" {
			text = strings.TrimSpace(text + " (" + s.Label + ")")
		}
		if s.StandIn != "" {
			text += ", a stand-in for " + s.StandIn
		}
		if n := len(s.Members); n > 1 {
			text += fmt.Sprintf(", %d nodes", n)
		}
		if key := name + "\x00" + text; name != "" && text != "" && of[key] == "" {
			of[key] = text
			if names[text] == nil {
				lines = append(lines, text)
			}
			names[text] = append(names[text], name)
		}
	}
	for _, o := range outcomes {
		c := broker[o.Cell]
		see(c.Broker.Name, o.Subject)
		for _, g := range o.Groups {
			if i := slices.IndexFunc(c.Workload.Groups, func(x plan.Group) bool { return x.Name == g.Name }); i >= 0 &&
				g.Subject != nil && c.Workload.Groups[i].Broker != nil {
				see(c.Workload.Groups[i].Broker.Name, *g.Subject)
			}
		}
	}
	slices.Sort(lines) // independent of the order of outcomes
	for i, text := range lines {
		slices.Sort(names[text])
		lines[i] = fmt.Sprintf("%s (%s)", text, strings.Join(names[text], ", "))
	}
	return lines
}

// resilienceFacts returns what happens to messages whose connection breaks before the confirm. If cells differ, each
// line lists its brokers. A broker in the process of an agent has no connections that could break.
func resilienceFacts(cells []plan.Cell) (lines []string) {
	brokers := map[string][]string{}
	for _, c := range cells {
		for _, part := range (plan.Task{Cell: c}).Parts() {
			if !part.Cell.Workload.Publishers.Confirmed() || part.Cell.InProcess {
				continue
			}
			var text string
			switch part.Cell.Resilience {
			case plan.NoResilience:
				text = "messages of a broken connection stay unconfirmed"
			case plan.ResilienceByLibrary:
				text = "the client library repeats requests, with its default settings; what it gives up is published again"
			case plan.ResilienceByGuide:
				text = "messages of a broken connection are published again (vendor guide)"
			default:
				continue
			}
			brokers[text] = addNew(brokers[text], part.Cell.Broker.Name)
		}
	}
	for text, names := range brokers {
		if len(brokers) > 1 {
			slices.Sort(names)
			text += " (" + strings.Join(names, ", ") + ")"
		}
		lines = append(lines, text)
	}
	slices.Sort(lines)
	return lines
}

// maxHosts limits the listed hosts.
const maxHosts = 8

// hostFacts returns the hosts of the agents.
func hostFacts(cells []plan.Cell, outcomes []plan.Outcome) string {
	agents := map[string][]string{}
	for _, o := range outcomes {
		for _, a := range o.Agents {
			agents[a.Host] = addNew(agents[a.Host], a.Agent)
		}
	}
	hosts := slices.Sorted(maps.Keys(agents))
	switch {
	case len(hosts) == 0:
		return ""
	case len(hosts) > maxHosts:
		return fmt.Sprintf("agents on %d hosts", len(hosts))
	}
	text := make([]string, len(hosts))
	for i, host := range hosts {
		slices.Sort(agents[host])
		text[i] = fmt.Sprintf("%s (agents %s)", cmp.Or(host, "unknown"), strings.Join(agents[host], ", "))
	}
	all := strings.Join(text, ", ")
	if !slices.ContainsFunc(cells, func(c plan.Cell) bool { return !c.InProcess || c.Broker.Driver == "loopback" }) {
		all += "; the broker runs in the process of the agents"
	}
	return all
}

// factLines returns facts as aligned lines of at most so many columns; 0: no limit.
func factLines(facts []Fact, width int) (lines []string) {
	names := 0
	for _, f := range facts {
		names = max(names, display.Width(f.Name))
	}
	for _, f := range facts {
		lead := display.Pad(f.Name, names, true) + "  "
		for _, text := range display.Wrap(display.Clean(f.Text), max(0, width-len(lead))) {
			lines = append(lines, lead+text)
			lead = strings.Repeat(" ", len(lead))
		}
	}
	return lines
}
