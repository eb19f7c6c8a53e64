package matrix

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// problem is an error in a filled cell or in an entry of a file, without its position.
type problem struct{ path, message string }

type problems []problem

// report adds a problem if wrong is true.
func (p *problems) report(wrong bool, path, format string, args ...any) {
	if wrong {
		*p = append(*p, problem{path, fmt.Sprintf(format, args...)})
	}
}

// duplicateFields returns errors for fields that are set in short and long form.
func duplicateFields(tree map[string]any) []problem {
	out := duplicateSizes(at(tree, "message", "size"))
	out.report(tree["latency"] != nil && at(tree, "network", "latency") != nil, "latency",
		"it is also set as network.latency; remove one of them")
	return out
}

// duplicateSizes returns errors for list elements that have both a size and bounds.
func duplicateSizes(size any) (out problems) {
	shares, _ := size.([]any)
	for i, s := range shares {
		share, _ := s.(map[string]any)
		out.report(share["size"] != nil && (share["min"] != nil || share["max"] != nil), "message.size",
			"size %d of the list has both size and bounds; give size, or min and max", i+1)
	}
	return out
}

// validateNames returns errors for invalid group names, and for sizes that are given twice in a group.
func validateNames(tree map[string]any) (out problems) {
	groups, _ := tree["groups"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		group, _ := groups[name].(map[string]any)
		for _, p := range duplicateSizes(at(group, "message", "size")) {
			out = append(out, problem{join("groups", name) + "." + p.path, p.message})
		}
		out.report(!groupName.MatchString(name), join("groups", name),
			"%q is no valid name of a group; give up to 12 letters and digits that begin with a letter", name)
	}
	return out
}

// inconsistentParts returns the errors of a cell without groups, or of its groups.
func inconsistentParts(w plan.Workload) []problem {
	if len(w.Groups) == 0 {
		return inconsistent(w)
	}
	var out problems
	out.report(w.Search != nil, "search", "a search varies one rate, and each group has its own; use a cell without groups")
	for i, part := range w.Parts() {
		out.report(part.Topology.Existing != "", "groups."+w.Groups[i].Name+".topology.existing",
			"groups run at the same time, and need queues of their own; use a cell without groups")
		for _, p := range inconsistent(part) {
			if top, _, _ := strings.Cut(p.path, "."); slices.Contains(ofGroups, top) {
				p.path = "groups." + w.Groups[i].Name + "." + p.path
			}
			if !slices.Contains(out, p) { // errors of the cell occur once per group
				out = append(out, p)
			}
		}
	}
	return out
}

// inconsistent returns errors for values that are valid separately but not together, in a cell without groups or in one
// group.
func inconsistent(w plan.Workload) []problem {
	var out problems
	p, c := w.Publishers, w.Consumers
	out.report(p.Batch.Min > p.Batch.Max, "publishers.batch", "min %d is above max %d; swap them", p.Batch.Min, p.Batch.Max)
	out.report(w.Drain.Idle > w.Drain.Timeout, "drain.idle", "%s is above drain.timeout, %s; lower it or raise drain.timeout",
		w.Drain.Idle, w.Drain.Timeout)
	out.report(p.Rate > 0 && len(p.Profile) > 0, "publishers.profile",
		"publishers.rate, %v, is also set; remove one of them", p.Rate)
	out.report(len(p.Profile) > 0 && !slices.ContainsFunc(p.Profile,
		func(s plan.Stage) bool { return s.Messages(s.For.D()) > 0 }), "publishers.profile",
		"no stage has a rate above 0; set one")
	out.report(p.Arrivals == plan.ArrivalsPoisson && !p.Open() && w.Search == nil, "publishers.arrivals",
		"%q needs intended send times; set publishers.rate or publishers.profile", p.Arrivals)
	queues, readers := w.Topology.Queues, c.Nodes*c.Threads
	out.report(readers > 0 && readers < queues, "topology.queues",
		"%d queues but only %s per subscription: some queues would have no consumer; raise consumers.threads or lower topology.queues", queues, display.Count(readers, "consumer"))
	if c.Colocate && c.Nodes > 0 {
		out.report(p.Nodes != c.Nodes, "consumers.nodes",
			"%d, and publishers.nodes is %d: with consumers.colocate each agent receives its own messages; make them equal", c.Nodes,
			p.Nodes)
		out.report(queues%c.Nodes != 0, "topology.queues",
			"%d do not divide among %s: with consumers.colocate each agent has its own queues; give a multiple of consumers.nodes",
			queues, display.Count(c.Nodes, "agent"))
		out.report(c.Nodes > 1 && w.Topology.Churn.Rate > 0, "topology.churn",
			"one agent sends through new bindings to all queues, but with consumers.colocate each agent receives only its own messages; use one node")
	}
	out.report(c.Nodes > 0 && c.Ack == "every" && c.Prefetch > 0 && c.Prefetch < c.AckEvery, "consumers.ackEvery",
		"%d is above consumers.prefetch, %d: the broker would stop before the first acknowledgement; lower it", c.AckEvery, c.Prefetch)
	out.report(c.Nodes > 0 && c.Ack == "interval" && c.Prefetch > 0 && c.AckInterval >= w.Drain.Idle, "drain.idle",
		"%s is not above consumers.ackInterval, %s: a consumer with a full prefetch receives nothing for an interval, and waiting messages would count as lost; raise it",
		w.Drain.Idle, c.AckInterval)
	validateExisting(&out, w)
	validatePlacement(&out, w)
	validateFaults(&out, w)
	validateSteady(&out, w)
	validateMessage(&out, w.Message)
	if c.Nodes > 0 {
		validateConsumers(&out, c, w.Drain.Idle)
		validateLifetime(&out, "consumers", c.Lifetime, w.Measure, p.Count)
	}
	validateLifetime(&out, "publishers", p.Lifetime, w.Measure, p.Count)
	return out
}

// validateSteady reports settings with which warm-up "auto" cannot end properly.
func validateSteady(out *problems, w plan.Workload) {
	s, p := w.Steady, w.Publishers
	if !s.Auto {
		return
	}
	out.report(s.Min > s.Max, "steady.min", "min %s is above max %s; swap them", s.Min, s.Max)
	out.report(p.Count > 0, "publishers.count",
		"%d messages with warmup \"auto\": a message count needs a fixed warm-up; give a duration as warmup", p.Count)
	out.report(p.Lifetime.ConnectAt > 0, "publishers.lifetime.connectAt",
		"%s with warmup \"auto\": publishers send nothing in warm-up, so the load never becomes steady; give a duration as warmup", p.Lifetime.ConnectAt)
	out.report(len(p.Profile) > 0 && p.Profile[0].Rate == 0, "publishers.profile",
		"its first stage, which warm-up uses, has rate 0, and warmup is \"auto\"; give a duration as warmup, or a rate above 0")
}

func validateMessage(out *problems, m plan.Message) {
	out.report(m.Size == 0, "message.size", "the list is empty; give at least one {size} or {min, max}")
	for i, s := range m.Sizes {
		out.report(s.Min == 0 || s.Max == 0, "message.size", "size %d of the list is incomplete; give size, or min and max",
			i+1)
		out.report(s.Min > s.Max && s.Max > 0, "message.size", "min %d is above max %d; swap them", s.Min, s.Max)
	}
	pay, isDefault := m.Payload, plan.Default().Message.Payload.Repeat
	out.report(pay.Repeat != isDefault && pay.Kind != plan.PayloadCompressible, "message.payload.repeat",
		"%v has no effect with kind %q; set kind: \"compressible\"", pay.Repeat, pay.Kind)
	out.report(pay.Kind == plan.PayloadFile && !filepath.IsAbs(pay.File), "message.payload.file",
		"%q is no absolute path; give one on the hosts of the agents that publish", pay.File)
	out.report(pay.Kind != plan.PayloadFile && pay.File != "", "message.payload.file",
		"%q has no effect with kind %q; set kind: \"file\"", pay.File, pay.Kind)
	out.report(m.Keys.Skew > 0 && m.Keys.Count == 0, "message.keys.skew",
		"%v has no effect without message.keys.count; set it", m.Keys.Skew)
}

func validateConsumers(out *problems, c plan.Consumers, idle plan.Duration) {
	s := c.Process
	out.report(s.Min > s.Max && s.Mean == 0, "consumers.process", "min %s is above max %s; swap them", s.Min, s.Max)
	out.report(s.Mean > 0 && (s.Min > 0 || s.Max > 0), "consumers.process",
		"it has a mean, %s, and also bounds; give {mean}, or {min, max}", s.Mean)
	batch := c.Batch
	if c.Prefetch > 0 {
		batch = min(batch, c.Prefetch)
	}
	if takes := longest(s, batch); s.Min <= s.Max {
		out.report(takes >= idle, "consumers.process",
			"a consumer may process %s for up to %s without receiving, and drain.idle is %s: waiting messages would count as lost; lower consumers.batch or raise drain.idle",
			display.Count(batch, "message"), takes, idle)
	}
	out.report(c.Nack > 0 && c.Ack == "automatic", "consumers.nack",
		"%v needs acknowledgements, and consumers.ack is \"automatic\"; set consumers.ack: \"each\"", c.Nack)
}

// longest returns the practical maximum of the processing time of a batch. For exponential times it is one maximum of
// ten means, plus the mean of each other message.
func longest(s plan.DurationDist, batch int) plan.Duration {
	if s.Mean > 0 {
		return s.Mean * plan.Duration(batch-1+10)
	}
	return s.Max * plan.Duration(batch)
}

func validateLifetime(out *problems, role string, p plan.Lifetime, measure plan.Duration, count uint64) {
	if p == (plan.Lifetime{}) {
		return
	}
	at := role + ".lifetime"
	out.report(count > 0, at,
		"%s have lifetimes, and publishers.count ends the measurement; use measure instead", role)
	out.report(p.ConnectAt >= measure && p.ConnectAt > 0, at+".connectAt", "%s is not before the measurement ends, at %s; lower it",
		p.ConnectAt, measure)
	out.report(p.DisconnectAt >= measure && p.DisconnectAt > 0, at+".disconnectAt",
		"%s is not before the measurement ends, at %s; remove it to stay connected until the end", p.DisconnectAt, measure)
	out.report(p.DisconnectAt > 0 && p.DisconnectAt <= p.ConnectAt, at+".disconnectAt", "%s is not after connectAt, %s; raise it", p.DisconnectAt,
		p.ConnectAt)
	out.report((p.Stay > 0) != (p.Away > 0), at, "stay is %s and away is %s; give both or neither", p.Stay, p.Away)
	out.report(p.Stay > 0 && p.ConnectAt+p.Stay >= measure, at+".stay",
		"%s after connectAt, %s, is not before the measurement ends, at %s: no client would disconnect; lower it", p.Stay, p.ConnectAt, measure)
}

// validateExisting reports settings that need publishers in a cell without, and settings that need queues of the task's
// own in a cell with existing queues.
func validateExisting(out *problems, w plan.Workload) {
	p, c, t := w.Publishers, w.Consumers, w.Topology
	if p.Nodes == 0 {
		out.report(t.Existing == "", "publishers.nodes",
			"0, and the queues are declared empty; give 1 or more, or set topology.existing to consume its messages")
		out.report(c.Nodes == 0, "publishers.nodes", "0, and consumers.nodes is 0; give 1 or more of one of both")
		const without = "it has no effect without publishers; remove it"
		out.report(p.Count > 0, "publishers.count", without)
		out.report(p.Open(), "publishers", "a rate or profile has no effect without publishers; remove it")
		out.report(p.Lifetime != plan.Lifetime{}, "publishers.lifetime", without)
		out.report(c.Lifetime != plan.Lifetime{}, "consumers.lifetime",
			"the measurement would end while consumers are disconnected, as the cell has no publishers; remove it")
		out.report(w.Steady.Auto, "warmup", "\"auto\" needs publishers; give a duration, such as \"0s\"")
		out.report(w.Search != nil, "search", "a search varies the publish rate, and the cell has no publishers; remove it")
	}
	if t.Existing == "" {
		return
	}
	out.report(t.Queues > 1 && !strings.Contains(t.Existing, "%d"), "topology.existing",
		"%q is one name, and topology.queues is %d; write %%d for the number of the queue in it", t.Existing, t.Queues)
	out.report(strings.HasPrefix(t.Existing, "lockstep-"), "topology.existing",
		"%q begins like the names that Lockstep declares, which cleanup removes; use another queue", t.Existing)
	const own = "queues of topology.existing are not declared; remove one of both"
	out.report(w.Search != nil && c.Nodes > 0, "search",
		"a trial would receive the backlog of the one before it from topology.existing; remove one of both")
	out.report(t.Subscriptions > 1, "topology.subscriptions", own)
	out.report(t.Bindings > 1, "topology.bindings", own)
	out.report(t.Churn.Rate > 0, "topology.churn", own)
	out.report(drivers.Node(t.QueueNode).Chosen(), "topology.queueNode", own)
	out.report(c.Nodes > 0 && c.Nack > 0, "consumers.nack",
		"messages of other programs in topology.existing would be rejected; remove one of both")
}

// existingRetry returns the retry policy of a cell with existing queues. An agent that was cut off may still receive
// the messages of the next attempt, so the default is no retry.
func existingRetry(r *plan.Retry) (*plan.Retry, []problem) {
	if r == nil {
		return &plan.Retry{}, nil
	}
	for _, kind := range []plan.FailureKind{plan.FailedAgentLost, plan.FailedTimeout} {
		if slices.Contains(r.On, kind) {
			return r, []problem{{"retry.on", fmt.Sprintf(
				"%q: an agent that was cut off may still receive messages of the next attempt from topology.existing; remove it", kind)}}
		}
	}
	return r, nil
}

// Label checks an agent's label. The error contains the valid form.
func Label(name, value string) error {
	if !plan.IsName(name, 100) || !plan.IsName(value, 100) {
		return fmt.Errorf("label %q: write it like zone=a, name and value of letters, digits, \".\", \"_\" and \"-\", each beginning with a letter or digit", name+"="+value)
	}
	return nil
}

// validatePlacement returns errors for label requirements that no agent can meet.
func validatePlacement(out *problems, w plan.Workload) {
	p, c := w.Publishers, w.Consumers
	for _, side := range []struct {
		path string
		on   plan.Labels
	}{{"publishers.on", p.On}, {"consumers.on", c.On}} {
		for _, name := range slices.Sorted(maps.Keys(side.on)) {
			out.report(!plan.IsName(name, 100), side.path,
				"%q is no valid label; give a name of letters, digits, \".\", \"_\" and \"-\"", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.On)) {
		other, both := c.On[name]
		out.report(c.Colocate && both && other != p.On[name], "consumers.on",
			"%s is %q, and %q in publishers.on: with consumers.colocate an agent needs both; make them equal", name, other,
			p.On[name])
	}
}

// validateFaults reports the errors of a cell's faults.
func validateFaults(out *problems, w plan.Workload) {
	mode := w.Publishers.Mode
	for i, f := range w.Faults {
		path := fmt.Sprintf("faults[%d]", i)
		connections := f.Kind == plan.FaultCut || f.Kind == plan.FaultStall || f.Kind == plan.FaultSlow
		out.report(connections && f.Target != "", path+".target",
			"%s affects connections; remove target, or use kill, pause, restart or isolate", f.Kind)
		out.report(!connections && f.Target == "", path,
			"%s needs a target; name an entry of the --faults file of an agent on the broker's host", f.Kind)
		out.report(!connections && f.On != "all", path+".on",
			"%s affects the broker, not the connections of %s; remove on", f.Kind, f.On)
		out.report(!connections && f.Share < 1, path+".share",
			"%s affects the broker, not a share of connections; remove share", f.Kind)
		out.report(f.Kind == plan.FaultSlow && f.Latency == 0 && f.Bandwidth == 0, path,
			"slow has no effect; set latency, bandwidth, or both")
		out.report(f.Kind != plan.FaultSlow && f.Latency != 0, path+".latency", "only slow has it; remove it")
		out.report(f.Kind != plan.FaultSlow && f.Bandwidth != 0, path+".bandwidth", "only slow has it; remove it")
		out.report(f.At+f.For > w.Measure, path,
			"it ends at %s, after the end of the measurement, %s; begin earlier or raise measure", f.At+f.For,
			w.Measure)
		out.report(f.On != "all" && w.Consumers.Colocate, path+".on",
			"with consumers.colocate each agent has connections of publishers and consumers; remove on or colocate")
		out.report(f.On == "consumers" && w.Consumers.Nodes == 0, path+".on", "the cell has no consumers; use publishers")
		out.report(f.On == "publishers" && w.Publishers.Nodes == 0, path+".on", "the cell has no publishers; use consumers")
		out.report(f.Share < 1 && (mode == "connection-per-message" || mode == "connection-per-message-confirm") &&
			f.On != "consumers", path+".share", "in mode %s there are no lasting connections; remove share", mode)
		for k, g := range w.Faults[:i] {
			out.report(overlap(f, g), path, "it overlaps with faults[%d] (%s); begin at %s or later", k, g, g.At+g.For)
		}
	}
	out.report(len(w.Faults) > 0 && len(w.Groups) > 0, "faults",
		"a cell with groups cannot have faults; use one cell per group, or remove faults")
	out.report(len(w.Faults) > 0 && w.Search != nil, "faults", "a search cannot have faults; remove faults or search")
}

// overlap reports whether two faults affect the same target or connections at the same time.
func overlap(f, g plan.Fault) bool {
	if f.At >= g.At+g.For || g.At >= f.At+f.For || f.Connections() != g.Connections() {
		return false
	}
	if !f.Connections() {
		return f.Target == g.Target
	}
	return f.On == g.On || f.On == "all" || g.On == "all"
}

// validateSearch returns the errors of a capacity search, and of fields that cannot be combined with one.
func validateSearch(w plan.Workload, metrics plan.Metrics) []problem {
	s := w.Search
	if s == nil || len(w.Groups) > 0 { // a search with groups is reported by inconsistentParts
		return nil
	}
	var out problems
	p := w.Publishers
	out.report(p.Rate > 0, "publishers.rate", "the search sets the rate; remove publishers.rate, or give it as search.from")
	out.report(len(p.Profile) > 0, "publishers.profile", "the search sets the rate; remove publishers.profile")
	out.report(p.Count > 0, "publishers.count", "steps of a search have a fixed duration; remove publishers.count")
	out.report(p.Lifetime != plan.Lifetime{}, "publishers.lifetime",
		"publishers that disconnect send less than the rate of a step; remove it")
	out.report(w.Consumers.Lifetime.ConnectAt > 0, "consumers.lifetime.connectAt",
		"steps of a search are shorter than the verification, and consumers that connect at a fixed time would change the load; remove it")
	out.report(w.Consumers.Lifetime.DisconnectAt > 0, "consumers.lifetime.disconnectAt",
		"steps of a search are shorter than the verification, and consumers that disconnect at a fixed time would change the load; remove it")
	out.report(len(w.Faults) > 0, "search",
		"a fault makes the condition fail independently of capacity; remove faults or search")
	out.report(s.From > s.Max, "search.from", "%v is above search.max, %v", s.From, s.Max)
	out.report(s.Steps < s.Repeats+2, "search.steps", "%d steps are too few for a search with %d repeats; give at least %d",
		s.Steps, s.Repeats, s.Repeats+2)
	why := unmeasured(s.While, w, metrics)
	out.report(why != "", "search.while", "%s", why)
	return out
}

// unmeasured returns the error of a condition, or the values in it that never have a number in this workload.
func unmeasured(condition string, w plan.Workload, metrics plan.Metrics) string {
	c, err := rules.ParseCondition(condition, w, metrics)
	if err != nil {
		return err.Error()
	}
	var absent []string
	for _, name := range c.Names() {
		if why := w.Absent(name); why != "" {
			absent = append(absent, fmt.Sprintf("%s never has a number in this cell: %s", name, why))
		}
	}
	return strings.Join(absent, "; ")
}

// validateRules returns errors for invalid rules, and for rules that no outcome of this workload can meet.
func validateRules(rules []givenRule, w plan.Workload, metrics plan.Metrics) (all []problem) {
	for i, rule := range rules {
		wrong := unmet(rule.Text, w, metrics)
		if slices.ContainsFunc(rules[:i], func(r givenRule) bool { return r.Text == rule.Text }) {
			wrong = []string{" is duplicated; remove one"}
		}
		for k := range wrong {
			wrong[k] = fmt.Sprintf("%q%s", rule.Text, wrong[k])
		}
		if len(wrong) > 0 {
			all = append(all, problem{rule.path, strings.Join(wrong, "; ")})
		}
	}
	return all
}

// unmet returns why no outcome of this workload can meet a rule.
func unmet(rule string, w plan.Workload, metrics plan.Metrics) (wrong []string) {
	if r, is, err := rules.ParseRegression(rule, metrics); is {
		if err != nil {
			return []string{": " + err.Error()}
		}
		for _, name := range r.Values {
			if why := absent(name, w); why != "" {
				wrong = append(wrong, fmt.Sprintf(": %s never has a number in this cell: %s", name, why))
			}
		}
		return wrong
	}
	for _, part := range w.Parts() {
		if why := unmeasured(rule, part, metrics); why != "" {
			return []string{": " + why} // other groups have the same error, or none
		}
	}
	return nil
}

// absent returns why a cell with this workload never has a number for a value, which may be that of a group. It returns
// "" if the cell can have one.
func absent(name string, w plan.Workload) (why string) {
	group, plain := plan.SplitGroup(name)
	if group == "" {
		var have []string // groups that can have a number
		for i, part := range w.Parts() {
			reason := part.Absent(plain)
			if why = cmp.Or(why, reason); reason == "" && len(w.Groups) == 0 {
				return ""
			} else if reason == "" {
				have = append(have, w.Groups[i].Name)
			}
		}
		v, _ := plan.Metrics(nil).ValueNamed(plain)
		if len(have) > 1 && !v.Traits.Has(plan.Sums) && !v.Traits.Has(plan.Maxima) &&
			!strings.HasPrefix(plain, "broker.") {
			return fmt.Sprintf("each group has its own; name one: %q", have[0]+"/"+plain)
		}
		if len(have) > 0 {
			return ""
		}
		return why
	}
	i := slices.IndexFunc(w.Groups, func(g plan.Group) bool { return g.Name == group })
	if i < 0 {
		return fmt.Sprintf("unknown group %q in the cell", group)
	}
	return w.Parts()[i].Absent(plain)
}

// tooLarge reports cells whose bodies in flight exceed plan.MaxInFlightBytes on an agent.
func tooLarge(c *plan.Cell) []problem {
	var out problems
	for _, part := range (plan.Task{Cell: *c}).Parts() {
		p, m, resilience := part.Cell.Workload.Publishers, part.Cell.Workload.Message, part.Cell.Resilience
		slots, path := p.InFlight(), "message.size"
		if part.Cell.CopiesBody && (resilience == "" || resilience == plan.NoResilience || !m.Varies()) {
			slots = 1
		}
		if part.Group != "" {
			path = "groups." + part.Group + "." + path
		}
		total := float64(p.Threads) * float64(slots) * float64(m.Size)
		out.report(total > plan.MaxInFlightBytes, path,
			"%d threads × %s in flight × %d bytes are %.1f GiB of bodies per agent, and the maximum is %d GiB; lower message.size, publishers.threads, publishers.maxInFlight or publishers.batch",
			p.Threads, display.Count(slots, "message"), m.Size, total/(1<<30), plan.MaxInFlightBytes>>30)
	}
	return out
}
