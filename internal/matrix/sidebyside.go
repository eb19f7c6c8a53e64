package matrix

import (
	"fmt"
	"slices"
	"strconv"
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
			"the cell also has groups; set the broker of each group instead"}}
	}
	if len(names) == 1 {
		return []problem{{"sideBySide", "a comparison needs several brokers; name at least two"}}
	}
	groups := map[string]any{}
	var known []string
	for _, n := range names {
		broker, _ := n.(string)
		name := sideBySide(broker)
		_, exists := m.brokers[broker]
		switch {
		case !exists:
			out = append(out, problem{"sideBySide", noBroker(m.brokers, strconv.Quote(broker), broker)})
		case slices.Contains(known, broker):
			out = append(out, problem{"sideBySide", fmt.Sprintf("%q is duplicated; name each broker once", broker)})
		case !groupName.MatchString(name) || groups[name] != nil:
			out = append(out, problem{"sideBySide",
				fmt.Sprintf("the name of broker %q gives no unique name of a group; use groups instead, each with a broker", broker)})
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
			out = append(out, problem{join("groups", name) + ".broker", noBroker(m.brokers, strconv.Quote(broker), broker)})
		}
		own[name] = b // nil: an error was reported
	}
	slices.SortFunc(out, func(a, b problem) int { return strings.Compare(a.path, b.path) })
	return own, out
}
