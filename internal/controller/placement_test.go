package controller

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
)

// agentsOf creates agents from texts such as "a zone=1 role=load".
func agentsOf(list ...string) (agents []wire.AgentInfo) {
	for _, text := range list {
		words := strings.Fields(text)
		a := wire.AgentInfo{Heartbeat: wire.Heartbeat{Agent: words[0]}}
		for _, w := range words[1:] {
			name, value, ok := strings.Cut(w, "=")
			if !ok {
				a.Observer = w == "observer"
				continue
			}
			if a.Labels == nil {
				a.Labels = map[string]string{}
			}
			a.Labels[name] = value
		}
		agents = append(agents, a)
	}
	return agents
}

func roles(publishers, consumers int, on, consumersOn plan.Labels) plan.Workload {
	w := plan.Default()
	w.Publishers.Nodes, w.Consumers.Nodes, w.Publishers.On, w.Consumers.On = publishers, consumers, on, consumersOn
	return w
}

func TestAgentsAreChosenByLabels(t *testing.T) {
	a, b := plan.Labels{"zone": "a"}, plan.Labels{"zone": "b"}
	colocated := roles(1, 1, a, plan.Labels{"role": "load"})
	colocated.Consumers.Colocate = true
	grouped := plan.Default()
	grouped.Groups = []plan.Group{
		{Name: "bulk", Publishers: roles(1, 1, b, nil).Publishers, Consumers: roles(1, 1, b, nil).Consumers},
		{Name: "talk", Publishers: roles(1, 1, a, a).Publishers, Consumers: roles(1, 1, a, a).Consumers},
	}
	for _, c := range []struct {
		name string
		work plan.Workload
		has  []wire.AgentInfo
		want string // names in the order of roles, or the number of missing agents with their labels
	}{
		{"without labels, by name", roles(2, 1, nil, nil), agentsOf("x zone=a", "y", "z", "zz"), "x y z"},
		{"different labels of publishers and consumers", roles(1, 1, b, a), agentsOf("x zone=a", "y zone=b"), "y x"},
		{"labels of consumers only", roles(1, 1, nil, a), agentsOf("x zone=a", "y"), "y x"},
		{"an agent that matches both", roles(1, 1, plan.Labels{"zone": "a"}, plan.Labels{"disk": "ssd"}),
			agentsOf("x zone=a disk=ssd", "y zone=a"), "y x"},
		{"an agent that is moved to another role", roles(1, 1, plan.Labels{"disk": "ssd"}, plan.Labels{"zone": "a"}),
			agentsOf("x zone=a disk=ssd", "y disk=ssd", "z disk=hdd"), "y x"},
		{"colocated", colocated, agentsOf("x zone=a", "y role=load", "z role=load zone=a"), "z"},
		{"groups", grouped, agentsOf("w", "x zone=a", "y zone=a", "z zone=b"), "z w x y"},
		{"too few agents with a label", roles(2, 1, a, b), agentsOf("x zone=a", "y zone=b", "z zone=b"), "1 zone=a"},
		{"one agent for two roles", roles(1, 1, a, a), agentsOf("x zone=a", "y zone=b"), "1 zone=a"},
		{"other value of a label", roles(1, 0, a, nil), agentsOf("x zone=b"), "1 zone=a"},
		{"empty value of a label", roles(1, 0, plan.Labels{"zone": ""}, nil), agentsOf("x"), "1 zone="},
		{"observers get no role", roles(1, 0, nil, nil), agentsOf("x observer", "y"), "y"},
	} {
		chosen, missing := assignRoles(c.work, c.has)
		got := strings.Join(names(chosen), " ")
		for _, role := range missing {
			got += fmt.Sprintf("%d %s", role.Agents, role.On)
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// A placement is found if there is one, for any labels: the result is compared with an exhaustive search.
func TestPlacementIsFoundIfThereIsOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	some := func() plan.Labels {
		l := plan.Labels{}
		for _, name := range []string{"a", "b", "c"} {
			if r.IntN(3) == 0 {
				l[name] = string(rune('0' + r.IntN(2)))
			}
		}
		return l
	}
	found, none := 0, 0
	for range 3000 {
		w := plan.Default()
		for g := range 1 + r.IntN(2) {
			x := roles(r.IntN(3), r.IntN(3), some(), some())
			w.Groups = append(w.Groups, plan.Group{Name: string(rune('g' + g)), Publishers: x.Publishers,
				Consumers: x.Consumers})
		}
		agents := agentsOf(strings.Fields("p q r s t u v")[:r.IntN(8)]...)
		for i := range agents {
			for name, value := range some() {
				if agents[i].Labels == nil {
					agents[i].Labels = map[string]string{}
				}
				agents[i].Labels[name] = value
			}
		}
		chosen, missing := assignRoles(w, agents)
		var required []plan.Labels
		for _, role := range w.Roles() {
			for range role.Agents {
				required = append(required, role.On)
			}
		}
		possible := placeable(required, agents, 0)
		if possible != (missing == nil) {
			t.Fatalf("roles %v, agents %+v: got missing roles %+v, but a placement exists: %v", w.Roles(), agents,
				missing, possible)
		}
		if missing != nil {
			none++
			continue
		}
		found++
		used := map[string]bool{}
		for i, a := range chosen {
			if used[a.Agent] || !required[i].Within(a.Labels) {
				t.Fatalf("roles %v: agent %d: got %+v, want an unused agent with the labels", w.Roles(), i, a)
			}
			used[a.Agent] = true
		}
	}
	if found < 100 || none < 100 {
		t.Errorf("got %d cases with a placement, %d without, want at least 100 of each", found, none)
	}
}

func placeable(required []plan.Labels, agents []wire.AgentInfo, taken int) bool {
	if len(required) == 0 {
		return true
	}
	for i, a := range agents {
		if taken&(1<<i) == 0 && required[0].Within(a.Labels) && placeable(required[1:], agents, taken|1<<i) {
			return true
		}
	}
	return false
}

func TestShortageNamesMissingLabels(t *testing.T) {
	cell := plan.Cell{Workload: roles(2, 1, plan.Labels{"zone": "a", "disk": "ssd"}, nil)}
	got := shortage(cell, agentsOf("x zone=a", "y", "z observer")).Detail
	want := "too few agents with matching labels: 2 available (x with zone=a, y without labels, z as observer); required: 2 for publishers with disk=ssd zone=a (0 available), 1 for consumers (2 available)"
	if got != want {
		t.Errorf("shortage: got  %s\nwant %s", got, want)
	}
	var many []string
	for range 100 {
		many = append(many, "n")
	}
	if text := shortage(cell, agentsOf(many...)).Detail; len(text) > 1000 {
		t.Errorf("message for 100 agents: got %d bytes, want at most 1000", len(text))
	}
}

// An observer gets no role.
func TestAShortageDoesNotCountObservers(t *testing.T) {
	end := shortage(plan.Cell{Workload: roles(1, 1, nil, nil)}, agentsOf("load-1", "obs-1 observer"))
	const want = "too few agents: 1 available (load-1, obs-1 as observer), 2 required"
	if end.Detail != want {
		t.Errorf("shortage: got  %+v\nwant %s", end, want)
	}
}
