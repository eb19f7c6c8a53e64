package test

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/report"
	"example.org/lockstep/lockstep/test/forward"
)

// modes are all publish modes.
var modes = []string{"fire-and-forget", "confirm-window", "confirm-batch", "confirm-each", "connection-per-message",
	"connection-per-message-confirm"}

// metric matches a number in a table.
const metric = ` +[0-9][0-9,.]*[*†‡]*`

// flagColumn matches the column of flags, which may be empty.
const flagColumn = `( +[a-z][a-z *†‡-]*)? *$`

// The first command of the README prints a table and needs only Go. On a terminal of 100 columns, its output has at
// most 40 lines if the machine is healthy: tasks have no warnings, and no flags but backlog and shared-host.
func TestMatrixQuick(t *testing.T) {
	parallel(t)
	dir := t.TempDir()
	// beside other tests, clients may be inactive for a second
	ctl := shipped(t, dir, "quick.cue", "--set", `cell.drain.idle="10s"`, "--set", `cell.drain.timeout="1m"`)
	ctl.Exits(0)
	r := readRecord(t, dir, ctl)
	r.allValid()
	for _, mode := range modes {
		if mode == "connection-per-message" { // only its confirmed form
			continue
		}
		rows := regexp.MustCompile(`(?m)^` + mode + ` +1000/s` + metric + metric + `.*\n +maximum` + metric + metric)
		if !rows.MatchString(r.text) {
			t.Errorf("the table has no rows of rates for %s", mode)
		}
	}
	healthy := make([]plan.Outcome, len(r.outcomes))
	for i, o := range r.outcomes {
		o.Warnings, o.Values = nil, maps.Clone(o.Values)
		o.Limitations = []plan.Limitation{{Flag: plan.SharedHost, Cause: plan.CauseCPU, Host: "h",
			Agents: []string{"local-01", "local-02"}, Value: 2, Max: 2}} // the broker runs in the process of the agents
		for name, v := range o.Values {
			v.Flags = slices.DeleteFunc(slices.Clone(v.Flags), func(f plan.Flag) bool { return f != plan.Backlog })
			o.Values[name] = v
		}
		healthy[i] = o
	}
	var text strings.Builder
	if err := report.Results(&text, r.plan, healthy, report.Build(r.plan, healthy), 100); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	const paths = 5 // a blank line, the numbers of verdicts, the record, the report, and the next command
	if len(lines)+paths > 40 {
		t.Errorf("the output has %d lines:\n%s", len(lines)+paths, text.String())
	}
	for _, line := range lines {
		if display.Width(line) > 100 {
			t.Errorf("a line has %d columns: %s", display.Width(line), line)
		}
	}
}

// The study of asynchronous publishing, with a direct connection to the broker and through a TCP forwarder (via).
//
// The simulated network is between client and forwarder. So at 10 ms, a connection per message costs its round trips
// there, too.
func TestMatrixAsyncVersusSync(t *testing.T) {
	parallel(t)
	address, api := variable(t, "LOCKSTEP_RABBITMQ_URL"), managementOf(t, "LOCKSTEP_RABBITMQ_MANAGEMENT")
	target, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := forward.Start(target.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()

	r := ran(t, "async-vs-sync.cue", append(reduced(drained...),
		"--set", `axes.broker=["rabbit","proxied"]`,
		"--set", fmt.Sprintf("brokers.rabbit.options.url=%q", address),
		"--set", "brokers.rabbit.process.port="+target.Port(),
		"--set", fmt.Sprintf("brokers.proxied.via=%q", proxy.Addr()))...)
	r.asyncTables()
	r.asyncRatios()
	r.proxied(proxy.Accepted())
	api.nothingLeft(r.plan.ID)
}

// asyncTables checks that both tables have both brokers and all values.
func (r record) asyncTables() {
	for _, title := range []string{"Publish rate", "Broker CPU"} {
		for _, broker := range []string{"rabbit", "proxied"} {
			_, table, found := strings.Cut(r.text, title+", broker="+broker)
			if !found {
				r.t.Errorf("no table %q for %s", title, broker)
				continue
			}
			table, _, _ = strings.Cut(table, "broker=")
			for _, mode := range modes {
				if !regexp.MustCompile(`(?m)^` + mode + ` +1` + metric + metric + flagColumn).MatchString(table) {
					r.t.Errorf("table %q for %s lacks a row of two metrics for %s", title, broker, mode)
				}
			}
		}
	}
}

// asyncRatios checks the cost of waiting. Ratios of cells that were measured at different times are checked only in
// make test-long. The limit of a rate by latency is always checked.
func (r record) asyncRatios() {
	for _, broker := range []string{"rabbit", "proxied"} {
		rate := func(mode, latency string) float64 {
			return r.metric(r.at("broker="+broker, "mode="+mode, "latency="+latency), "publish.rate")
		}
		for _, ratio := range []struct {
			fast, slow, latency string
			minimum             float64
		}{
			{"confirm-window", "confirm-each", "0ms", 2},
			{"confirm-each", "connection-per-message-confirm", "0ms", 2},
			{"confirm-each", "connection-per-message", "0ms", 2},
			{"confirm-window", "confirm-each", "10ms", 20},
			{"confirm-each", "connection-per-message", "10ms", 3},
		} {
			if got := rate(ratio.fast, ratio.latency) / rate(ratio.slow, ratio.latency); long() && got < ratio.minimum {
				r.t.Errorf("%s at %s: %s is %.1f times %s, want %v at least", broker, ratio.latency, ratio.fast, got,
					ratio.slow, ratio.minimum)
			}
		}
		// A publisher that does not wait for confirms does not depend on the latency.
		for _, mode := range []string{"fire-and-forget", "confirm-window"} {
			if got := rate(mode, "10ms") / rate(mode, "0ms"); long() && got < 0.7 {
				r.t.Errorf("%s: %s at 10ms has %.2f of the rate at 0ms, want at least 0.7", broker, mode, got)
			}
		}
		// One message per round trip.
		if got := rate("confirm-each", "10ms"); got > 110 {
			r.t.Errorf("%s: %.0f messages a second, each confirmed over 10 ms, are more than the latency lets through",
				broker, got)
		}
	}
}

// proxied checks the number of connections through the forwarder: one per message in modes with a connection per
// message, and at least one per task in other modes. The other broker's connections do not use it.
func (r record) proxied(accepted int64) {
	var direct, through, tasks int64
	for _, o := range r.outcomes {
		proxied, each := strings.Contains(r.name(o), "broker=proxied"),
			strings.Contains(r.name(o), "mode=connection-per-message")
		switch {
		case proxied && each:
			through += int64(o.Ledger.Sent)
		case proxied:
			tasks++
		case each:
			direct += int64(o.Ledger.Sent)
		}
	}
	r.t.Logf("connection for each message: %d direct, %d through the proxy, which had %d connections", direct, through,
		accepted)
	if want := through + tasks; through == 0 || accepted < want || accepted >= want+direct {
		r.t.Errorf("the proxy had %d connections of %d messages with one each, and of %d other tasks; %d messages had one each past it", accepted, through, tasks, direct)
	}
}

// The study of prefetch on two nodes of a cluster. Queues are on the nodes that each case states, and the table is that
// of the study.
func TestMatrixPrefetch(t *testing.T) {
	parallel(t)
	nodes, api := strings.Split(variable(t, "LOCKSTEP_RABBITMQ3_URLS"), ","),
		managementOf(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT")
	dir := t.TempDir()
	ctl := shipped(t, dir, "prefetch.cue", append(reduced(drained[0]), "--quick", "--set",
		fmt.Sprintf("brokers.rabbit.options.urls=[%q,%q]", nodes[0], nodes[1]))...)
	seen := map[string]string{} // node of each queue
	for running := true; running; {
		var queues []placed
		api.must("/queues", &queues)
		for _, q := range queues {
			if q.Node != "" {
				seen[q.Name] = q.Node
			}
		}
		select {
		case <-ctl.Ended():
			running = false
		case <-time.After(200 * time.Millisecond):
		}
	}
	ctl.Exits(0)
	r := readRecord(t, dir, ctl)
	r.allValid()
	for _, task := range r.plan.Tasks() {
		at, node := "", 0
		for queue, where := range seen {
			if strings.HasPrefix(queue, task.Topic()) {
				at = where
			}
		}
		if name := task.Cell.Name(); strings.Contains(name, "case=no acks") {
			node = 1 // the consumer's
		}
		if want := api.nodeAt(nodes[node]); at != want {
			t.Errorf("%s: the queue was on %q, want node %d, %s", task.Cell.Name(), at, node, want)
		}
		row := regexp.MustCompile(`(?m)^` + caseOf(task.Cell) + ` {2,}(.*)$`).FindStringSubmatch(r.text)
		if row == nil || !regexp.MustCompile(`^ *[0-9,.]+( / [0-9,.]+)?[*†‡]*( +[a-z*†‡-]+)* *$`).MatchString(row[1]) {
			t.Errorf("%s: the table has %q, want one rate, or publish / consume", task.Cell.Name(), row)
		}
	}
	// The order of the other cases depends on the machine. One message at a time across two nodes is always the
	// slowest.
	slowest := r.outcomes[len(r.outcomes)-1]
	if caseOf(r.plan.Cells[slowest.Index]) != "acks, prefetch 1" || slowest.Values["throughput"].Flags == nil {
		t.Errorf("%s: receiving one at a time keeps pace with sending without waiting: %+v", r.name(slowest),
			slowest.Values["throughput"])
	}
	if long() {
		r.prefetchFindings()
	}
	api.nothingLeft(r.plan.ID)
}

// prefetchFindings checks the findings of the study for releases since 3.3: a prefetch of 1 lowers the consume rate,
// and mandatory publishing does not wait for the queue.
func (r record) prefetchFindings() {
	rate := func(name, value string) float64 {
		r.t.Helper()
		i := slices.IndexFunc(r.outcomes, func(o plan.Outcome) bool { return caseOf(r.plan.Cells[o.Index]) == name })
		if i < 0 {
			r.t.Fatalf("no outcome of %s", name)
		}
		return r.metric(r.outcomes[i], value)
	}
	if one, hundred := rate("acks, prefetch 1", "consume.rate"), rate("acks, prefetch 100", "consume.rate"); one > hundred/2 {
		r.t.Errorf("%.0f messages per second are received with a prefetch of 1, %.0f with 100", one, hundred)
	}
	plain, mandatory := rate("no acks, not mandatory", "publish.rate"), rate("no acks, mandatory", "publish.rate")
	if mandatory < plain/2 {
		r.t.Errorf("%.0f mandatory messages are sent per second, %.0f of others", mandatory, plain)
	}
}

func caseOf(c plan.Cell) string {
	text, _ := c.Coordinate("case")
	return text
}
