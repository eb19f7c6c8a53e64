package matrix

import (
	"fmt"
	"slices"
	"strings"

	"lockstep/internal/plan"
)

// expandSideBySide replaces the side-by-side brokers by one group each, and returns their errors.
func (m *Matrix) expandSideBySide(tree map[string]any) (out []problem) {
	names, _ := tree["sideBySide"].([]any)
	delete(tree, "sideBySide")
	if len(names) == 0 {
		return nil
	}
	if groups, _ := tree["groups"].(map[string]any); len(groups) > 0 {
		return []problem{{"sideBySide",
			"they are given together with groups; give each of the groups its broker instead"}}
	}
	if len(names) == 1 {
		return []problem{{"sideBySide", "one broker alone cannot be compared; name two or more brokers"}}
	}
	groups := map[string]any{}
	var known []string
	for _, n := range names {
		broker, _ := n.(string)
		name := sideBySide(broker)
		switch {
		case m.brokers[broker] == nil && !slices.Contains(m.brokerNames(), broker):
			out = append(out, problem{"sideBySide", m.noBroker(broker)})
		case slices.Contains(known, broker):
			out = append(out, problem{"sideBySide", fmt.Sprintf("%q is there twice; name each broker once", broker)})
		case !groupName.MatchString(name) || groups[name] != nil:
			out = append(out, problem{"sideBySide",
				fmt.Sprintf("no group of its own can be called by the name of broker %q; write groups instead, each with a broker", broker)})
		default:
			groups[name] = map[string]any{"broker": broker}
		}
		known = append(known, broker)
	}
	tree["groups"] = groups
	return out
}

// sideBySide returns the name of the group for a side-by-side broker.
func sideBySide(broker string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, broker)
	return name[:min(len(name), maxGroupName)]
}

// groupBrokers removes the brokers of groups from the tree and returns them.
func (m *Matrix) groupBrokers(tree map[string]any) (own map[string]*plan.Broker, out []problem) {
	groups, _ := tree["groups"].(map[string]any)
	own = map[string]*plan.Broker{}
	for name, g := range groups {
		group, _ := g.(map[string]any)
		broker, named := group["broker"].(string)
		delete(group, "broker")
		if !named {
			continue
		}
		b, there := m.brokers[broker]
		if !there && len(m.brokers) > 0 {
			out = append(out, problem{join("groups", name) + ".broker", m.noBroker(broker)})
		}
		own[name] = b // nil: an error was reported
	}
	slices.SortFunc(out, func(a, b problem) int { return strings.Compare(a.path, b.path) })
	return own, out
}
