package translate

import (
	"fmt"
	"slices"
	"strings"
)

// column holds the values of one field of the cell over all runs.
type column struct {
	axis   string // name of the axis if it varies
	values []any
}

func (c column) varies() bool {
	for _, v := range c.values {
		if literal(v) != literal(c.values[0]) {
			return true
		}
	}
	return false
}

// in returns the value of the column in the cell template.
func (c column) in() any {
	if c.varies() {
		return expression("axis." + c.axis)
	}
	return c.values[0]
}

// columns returns the columns of the cell, by the names of their axes.
func columns(runs []run) map[string]column {
	all := map[string]column{}
	for _, r := range runs {
		for _, f := range r.fields() {
			c := all[f.name]
			c.axis, c.values = f.name, append(c.values, f.value)
			all[f.name] = c
		}
	}
	return all
}

// axesInOrder is the order of axes in the matrix.
var axesInOrder = []string{"scenario", "broker", "size", "publishers", "channels", "mode", "maxInFlight", "rate",
	"count", "persistent", "mandatory",
	"consumerNodes", "consumers", "prefetch", "ack", "ackEvery", "queues", "subscriptions", "measure"}

// perfFields returns the fields of the matrix.
func perfFields(title string, runs []run) []field {
	brokers, names := perfBrokers(runs)
	all := columns(runs)
	all["broker"] = column{"broker", names}
	var varying []column
	for _, axis := range axesInOrder {
		if c := all[axis]; c.varies() || axis == "broker" && len(runs) > 0 {
			varying = append(varying, c)
		}
	}
	axes, zip := spread(varying)
	fields := []field{{"name", title}, {"brokers", brokers}, {"axes", axes}}
	if len(zip) > 0 {
		fields = append(fields, field{"zip", []any{zip}})
	}
	rows := rowsOf(varying, runs)
	rate := slices.ContainsFunc(runs, func(r run) bool { return r.rate > 0 })
	return append(fields, field{"cell", perfCell(all)},
		field{"tables", []any{[]field{{"rows", rows}, {"values", tableValues(rate)}}}})
}

// rowsOf returns the axes that identify the rows of the table. These are all axes or, if axes vary together, the
// scenario and the axes that vary within one.
func rowsOf(varying []column, runs []run) (rows []any) {
	for _, c := range varying {
		identifies := c.axis == "scenario" || !varying[0].varies() || varying[0].axis != "scenario"
		for i := range runs {
			identifies = identifies || i > 0 && runs[i].scenario == runs[i-1].scenario &&
				literal(c.values[i]) != literal(c.values[i-1])
		}
		if identifies {
			rows = append(rows, c.axis)
		}
	}
	return rows
}

func perfCell(all map[string]column) []field {
	var cell []field
	for axis, c := range all {
		if axis != "options" && axis != "broker" && c.varies() {
			cell = append(cell, field{"axis", expression("_")})
			break
		}
	}
	publishers := []field{{"threads", all["publishers"].in()}, {"mode", all["mode"].in()}}
	if m := all["mode"]; m.varies() || m.values[0] == "confirm-window" {
		publishers = append(publishers, field{"maxInFlight", all["maxInFlight"].in()})
	}
	publishers = append(publishers, field{"rate", all["rate"].in()})
	if c := all["count"]; c.varies() || c.values[0] != int64(0) {
		publishers = append(publishers, field{"count", c.in()})
	}
	publishers = append(publishers, field{"persistent", all["persistent"].in()})
	if c := all["mandatory"]; c.varies() || c.values[0] == true {
		publishers = append(publishers, field{"mandatory", c.in()})
	}
	consumers := []field{{"nodes", all["consumerNodes"].in()}}
	if c := all["consumerNodes"]; c.varies() || c.values[0] != int64(0) {
		consumers = append(consumers, field{"threads", all["consumers"].in()}, field{"prefetch", all["prefetch"].in()},
			field{"ack", all["ack"].in()})
		if a := all["ack"]; a.varies() || a.values[0] == "every" {
			consumers = append(consumers, field{"ackEvery", all["ackEvery"].in()})
		}
	}
	topology := []field{{"queues", all["queues"].in()}, {"subscriptions", all["subscriptions"].in()},
		{"channels", all["channels"].in()}}
	cell = append(cell, field{"publishers", publishers}, field{"consumers", consumers}, field{"topology", topology},
		field{"message", []field{{"size", all["size"].in()}}}, field{"warmup", "0s"},
		field{"measure", all["measure"].in()})
	if c := all["scenario"]; c.varies() {
		cell = append(cell, field{"labels", []field{{"scenario", c.in()}}})
	}
	return cell
}

// perfBrokers returns one broker per distinct set of options, and the name of the broker of each run.
func perfBrokers(runs []run) (brokers []field, names []any) {
	known := map[string]string{}
	for _, r := range runs {
		text := literal(r.options)
		if known[text] == "" {
			known[text] = "rabbitmq"
			if n := len(known); n > 1 {
				known[text] = fmt.Sprintf("rabbitmq-%d", n)
			}
			brokers = append(brokers, field{known[text], []field{{"driver", "rabbitmq"}, {"options", r.options}}})
		}
		names = append(names, known[text])
	}
	return brokers, names
}

// spread converts columns to axes. They are crossed if every combination of their values occurs; otherwise they are
// zipped.
func spread(varying []column) (axes []field, zip []any) {
	n := 0
	if len(varying) > 0 {
		n = len(varying[0].values)
	}
	distinct, product := make([][]any, len(varying)), 1
	for i, c := range varying {
		for _, v := range c.values {
			if !slices.ContainsFunc(distinct[i], func(d any) bool { return literal(d) == literal(v) }) {
				distinct[i] = append(distinct[i], v)
			}
		}
		product *= len(distinct[i])
	}
	seen := map[string]bool{} // combinations
	for i := range n {
		var key strings.Builder
		for _, c := range varying {
			key.WriteString(literal(c.values[i]) + "\x00")
		}
		seen[key.String()] = true
	}
	if product == n && len(seen) == n {
		for i, c := range varying {
			axes = append(axes, field{c.axis, distinct[i]})
		}
		return axes, nil
	}
	for _, c := range varying {
		axes = append(axes, field{c.axis, c.values})
		zip = append(zip, c.axis)
	}
	return axes, zip
}
