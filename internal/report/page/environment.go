package page

import (
	"cmp"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/internal/plan"
)

// environment is the brokers, hosts and clocks of the runs.
type environment struct {
	Brokers []brokerView
	Hosts   []hostView
	Clocks  []clockView
}

// brokerView is a broker with its own description. A broker that changed during a run has two views.
type brokerView struct {
	Run, Name, Driver string
	Subject           plan.Subject
	Tasks             int
}

// hostView is an agent on its host.
type hostView struct {
	Run, Agent, Host, Version, Cores string
	Clock                            string
	Tasks, Lost                      int
}

// clockView is the clock offset between two agents at its largest error bound.
type clockView struct {
	Run, Publisher, Consumer string
	Bound                    plan.Duration
	Offset                   plan.Duration
}

func environmentOf(all []recorded) (e environment) {
	for _, r := range all {
		e.brokers(r)
		e.hosts(r)
		e.clocks(r)
	}
	return e
}

func (e *environment) brokers(r recorded) {
	cells := map[string]plan.Cell{}
	for _, c := range r.plan.Cells {
		cells[c.ID] = c
	}
	for _, o := range r.outcomes {
		own := map[string]*plan.Subject{}
		for _, g := range o.Groups {
			own[g.Name] = g.Subject
		}
		seen := map[string]bool{}
		for _, part := range (plan.Task{Cell: cells[o.Cell]}).Parts() {
			b, subject := part.Cell.Broker, o.Subject
			if s := own[part.Group]; s != nil {
				subject = *s
			}
			if !seen[b.Name] {
				seen[b.Name] = true
				e.broker(r, b, subject)
			}
		}
	}
}

func (e *environment) broker(r recorded, b plan.Broker, s plan.Subject) {
	for i := range e.Brokers {
		if x := &e.Brokers[i]; x.Run == r.mark && x.Name == b.Name && x.Subject.Fingerprint == s.Fingerprint &&
			x.Subject.Version == s.Version {
			x.Tasks++
			return
		}
	}
	v := brokerView{Run: r.mark, Name: b.Name, Driver: b.Driver, Subject: s, Tasks: 1}
	if s.Label == "" {
		v.Subject.Label = b.Version
	}
	e.Brokers = append(e.Brokers, v)
}

func (e *environment) hosts(r recorded) {
	first := len(e.Hosts)
	for _, o := range r.outcomes {
		for _, a := range o.Agents {
			i := slices.IndexFunc(e.Hosts[first:],
				func(h hostView) bool { return h.Agent == a.Agent && h.Host == a.Host && h.Version == a.Version })
			if i < 0 {
				i = len(e.Hosts) - first
				e.Hosts = append(e.Hosts, hostView{Run: r.mark, Agent: a.Agent, Host: a.Host, Version: a.Version,
					Clock: a.Clock})
			}
			h := &e.Hosts[first+i]
			h.Tasks++
			if a.Lost {
				h.Lost++
			}
			for _, x := range o.Events {
				if x.Kind == plan.EventCores && x.Agent == a.Agent {
					h.Cores = x.Detail
				}
			}
		}
	}
	slices.SortStableFunc(e.Hosts[first:], func(a, b hostView) int {
		return cmp.Or(strings.Compare(a.Agent, b.Agent), strings.Compare(a.Host, b.Host))
	})
}

func (e *environment) clocks(r recorded) {
	first := len(e.Clocks)
	for _, o := range r.outcomes {
		for _, c := range o.Clocks {
			i := slices.IndexFunc(e.Clocks[first:],
				func(v clockView) bool { return v.Publisher == c.Publisher && v.Consumer == c.Consumer })
			if i < 0 {
				e.Clocks = append(e.Clocks, clockView{r.mark, c.Publisher, c.Consumer, c.Bound, c.Offset})
				continue
			}
			if v := &e.Clocks[first+i]; c.Bound > v.Bound {
				v.Bound, v.Offset = c.Bound, c.Offset
			}
		}
	}
}
