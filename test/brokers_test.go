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
	// clients may be inactive for a second, because other tests run in parallel
	ctl := startShipped(t, dir, "quick.cue", "--set", `cell.drain.idle="10s"`, "--set", `cell.drain.timeout="1m"`)
	ctl.Exits(0)
	r := readRecord(t, dir, ctl)
	r.checkAllValid()
	for _, mode := range modes {
		if mode == "connection-per-message" { // only its confirmed form
			continue
		}
		rows := regexp.MustCompile(`(?m)^` + mode + ` +1000/s` + metric + metric + `.*\n +maximum` + metric + metric)
		if !rows.MatchString(r.text) {
			t.Errorf("table rows of mode %s: got none, want one for 1000/s and one for the maximum:\n%s", mode, r.text)
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
		t.Errorf("output lines: got %d, want at most 40:\n%s", len(lines)+paths, text.String())
	}
	for _, line := range lines {
		if display.Width(line) > 100 {
			t.Errorf("columns of an output line: got %d, want at most 100: %s", display.Width(line), line)
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

	r := runShipped(t, "async-vs-sync.cue", append(reduced(longDrain...),
		"--set", `axes.broker=["rabbit","proxied"]`,
		"--set", fmt.Sprintf("brokers.rabbit.options.url=%q", address),
		"--set", "brokers.rabbit.process.port="+target.Port(),
		"--set", fmt.Sprintf("brokers.proxied.via=%q", proxy.Addr()))...)
	r.checkAsyncTables()
	r.checkAsyncRatios()
	r.checkProxied(proxy.Accepted())
	api.checkNoLeftovers(r.plan.ID)
}

// checkAsyncTables checks that both tables have both brokers and all values.
func (r record) checkAsyncTables() {
	for _, title := range []string{"Publish rate", "Broker CPU"} {
		for _, broker := range []string{"rabbit", "proxied"} {
			_, table, found := strings.Cut(r.text, title+", broker="+broker)
			if !found {
				r.t.Errorf("table %q of broker %s: got none, want one", title, broker)
				continue
			}
			table, _, _ = strings.Cut(table, "broker=")
			for _, mode := range modes {
				if !regexp.MustCompile(`(?m)^` + mode + ` +1` + metric + metric + flagColumn).MatchString(table) {
					r.t.Errorf("table %q of broker %s: got no row of mode %s with two metrics:\n%s", title, broker,
						mode, table)
				}
			}
		}
	}
}

// checkAsyncRatios checks how much publish modes that wait reduce the rate. Ratios of cells that were measured at
// different times are checked only in make test-long. The limit of a rate by latency is always checked.
func (r record) checkAsyncRatios() {
	for _, broker := range []string{"rabbit", "proxied"} {
		rate := func(mode, latency string) float64 {
			return r.metric(r.outcomeAt("broker="+broker, "mode="+mode, "latency="+latency), "publish.rate")
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
				r.t.Errorf("%s at latency %s: publish rate of %s divided by that of %s: got %.1f, want at least %v",
					broker, ratio.latency, ratio.fast, ratio.slow, got, ratio.minimum)
			}
		}
		// A publisher that does not wait for confirms does not depend on the latency.
		for _, mode := range []string{"fire-and-forget", "confirm-window"} {
			if got := rate(mode, "10ms") / rate(mode, "0ms"); long() && got < 0.7 {
				r.t.Errorf("%s: publish rate of %s at 10 ms divided by that at 0 ms: got %.2f, want at least 0.7",
					broker, mode, got)
			}
		}
		// One message per round trip.
		if got := rate("confirm-each", "10ms"); got > 110 {
			r.t.Errorf("%s: publish rate of confirm-each at 10 ms: got %.0f per second, want at most 110", broker, got)
		}
	}
}

// checkProxied checks the number of connections through the forwarder: one per message in modes with a connection per
// message, and at least one per task in other modes. The other broker's connections do not use it.
func (r record) checkProxied(accepted int64) {
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
	r.t.Logf("messages with their own connection: %d direct, %d through the forwarder, which accepted %d connections",
		direct, through, accepted)
	if want := through + tasks; through == 0 || accepted < want || accepted >= want+direct {
		r.t.Errorf("connections: got %d, want at least %d (%d messages, %d other tasks), below %d (with direct ones)",
			accepted, want, through, tasks, want+direct)
	}
}

// The study of prefetch on two nodes of a cluster. Queues are on the nodes that each case states, and the table is that
// of the study.
func TestMatrixPrefetch(t *testing.T) {
	parallel(t)
	nodes, api := strings.Split(variable(t, "LOCKSTEP_RABBITMQ3_URLS"), ","),
		managementOf(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT")
	dir := t.TempDir()
	ctl := startShipped(t, dir, "prefetch.cue", append(reduced(longDrain[0]), "--quick", "--set",
		fmt.Sprintf("brokers.rabbit.options.urls=[%q,%q]", nodes[0], nodes[1]))...)
	seen := map[string]string{} // node of each queue
	for running := true; running; {
		var queues []brokerObject
		api.mustGet("/queues", &queues)
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
	r.checkAllValid()
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
			t.Errorf("%s: node of the queue: got %q, want %q (address %d)", task.Cell.Name(), at, want, node)
		}
		row := regexp.MustCompile(`(?m)^` + caseOf(task.Cell) + ` {2,}(.*)$`).FindStringSubmatch(r.text)
		if row == nil || !regexp.MustCompile(`^ *[0-9,.]+( / [0-9,.]+)?[*†‡]*( +[a-z*†‡-]+)* *$`).MatchString(row[1]) {
			t.Errorf("%s: table row: got %q, want one rate, or publish / consume", task.Cell.Name(), row)
		}
	}
	// The order of the other cases depends on the machine. One message at a time across two nodes is always the
	// slowest.
	slowest := r.outcomes[len(r.outcomes)-1]
	if caseOf(r.plan.Cells[slowest.Index]) != "acks, prefetch 1" || slowest.Values["throughput"].Flags == nil {
		t.Errorf("last outcome: got %s with throughput %+v, want case \"acks, prefetch 1\" with a flag",
			r.name(slowest), slowest.Values["throughput"])
	}
	if long() {
		r.checkPrefetchFindings()
	}
	api.checkNoLeftovers(r.plan.ID)
}

// checkPrefetchFindings checks the findings of the study for releases since 3.3: a prefetch of 1 lowers the consume
// rate, and mandatory publishing does not wait for the queue.
func (r record) checkPrefetchFindings() {
	rate := func(name, value string) float64 {
		r.t.Helper()
		i := slices.IndexFunc(r.outcomes, func(o plan.Outcome) bool { return caseOf(r.plan.Cells[o.Index]) == name })
		if i < 0 {
			r.t.Fatalf("outcome of case %q: got none, want one", name)
		}
		return r.metric(r.outcomes[i], value)
	}
	if one, hundred := rate("acks, prefetch 1", "consume.rate"), rate("acks, prefetch 100", "consume.rate"); one > hundred/2 {
		r.t.Errorf("consume rate with a prefetch of 1: got %.0f, want at most half of that with 100, %.0f", one,
			hundred)
	}
	plain, mandatory := rate("no acks, not mandatory", "publish.rate"), rate("no acks, mandatory", "publish.rate")
	if mandatory < plain/2 {
		r.t.Errorf("publish rate of mandatory messages: got %.0f, want at least half of that of others, %.0f",
			mandatory, plain)
	}
}

func caseOf(c plan.Cell) string {
	text, _ := c.Coordinate("case")
	return text
}
