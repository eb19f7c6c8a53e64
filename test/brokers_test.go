package test

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
	"lockstep/test/forward"
)

// modes are all publish modes.
var modes = []string{"fire-and-forget", "confirm-window", "confirm-batch", "confirm-each", "connection-per-message",
	"connection-per-message-confirm"}

// metric is a number in a table, with its unit and flags.
const metric = ` +[0-9][0-9,.]*( [a-z-]+)*`

// The README's first command, as it stands: a table with nothing but Go. It takes under a minute; these programs look
// for races, and other tests run beside them.
func TestMatrixQuick(t *testing.T) {
	beside(t)
	dir := t.TempDir()
	ctl := shipped(t, dir, "quick.cue")
	if code := ctl.Leaves(); code != 0 {
		t.Errorf("ctl left with %d, want 0", code)
	}
	r := readRecord(t, dir, ctl)
	r.allValid()
	for _, mode := range modes {
		for _, threads := range []string{"1", "4"} {
			row := regexp.MustCompile(`(?m)^` + mode + ` +` + threads + metric + metric)
			if !row.MatchString(r.text) {
				t.Errorf("the table has no row of rates for %s with %s threads", mode, threads)
			}
		}
	}
}

// The study of asynchronous publishing, with the broker reached directly and by way of a proxy, a plain TCP forwarder
// (via).
//
// The simulated network lies between client and proxy, so at 10 ms a connection for each message costs its round trips
// there as well.
func TestMatrixAsyncVersusSync(t *testing.T) {
	beside(t)
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

	dir := t.TempDir()
	ctl := shipped(t, dir, "async-vs-sync.cue", "--quick", "--set", `cell.measure="1s"`,
		"--set", `axes.broker=["rabbit","proxied"]`,
		"--set", fmt.Sprintf("brokers.rabbit.options.url=%q", address),
		"--set", "brokers.rabbit.process.port="+target.Port(),
		"--set", fmt.Sprintf("brokers.proxied.via=%q", proxy.Addr()))
	if code := ctl.Leaves(); code != 0 {
		t.Errorf("ctl left with %d, want 0", code)
	}
	r := readRecord(t, dir, ctl)
	r.allValid()
	r.asyncTables()
	r.asyncRatios()
	r.proxied(proxy.Accepted())
	api.nothingLeft(r.plan.ID)
}

// asyncTables wants both tables for both brokers, all metrics in them.
func (r record) asyncTables() {
	for _, title := range []string{"Messages sent a second", "The broker's CPU, in cores"} {
		for _, broker := range []string{"rabbit", "proxied"} {
			_, table, found := strings.Cut(r.text, title+", broker="+broker)
			if !found {
				r.t.Errorf("no table %q for %s", title, broker)
				continue
			}
			table, _, _ = strings.Cut(table, "broker=")
			for _, mode := range modes {
				if !regexp.MustCompile(`(?m)^` + mode + ` +1` + metric + metric + ` *$`).MatchString(table) {
					r.t.Errorf("table %q for %s lacks a row of two metrics for %s", title, broker, mode)
				}
			}
		}
	}
}

// asyncRatios are what waiting costs. That cells measured one after the other differ so much is required in make
// test-long; that latency limits the rate, always.
func (r record) asyncRatios() {
	for _, broker := range []string{"rabbit", "proxied"} {
		rate := func(mode, latency string) float64 {
			return r.metric(r.at("broker="+broker, "mode="+mode, "latency="+latency), "publish.rate")
		}
		for _, ratio := range []struct {
			fast, slow, latency string
			least               float64
		}{
			{"confirm-window", "confirm-each", "0ms", 2},
			{"confirm-each", "connection-per-message", "0ms", 2},
			{"confirm-window", "confirm-each", "10ms", 20},
			{"confirm-each", "connection-per-message", "10ms", 3},
		} {
			if got := rate(ratio.fast, ratio.latency) / rate(ratio.slow, ratio.latency); long() && got < ratio.least {
				r.t.Errorf("%s at %s: %s is %.1f times %s, want %v at least", broker, ratio.latency, ratio.fast, got,
					ratio.slow, ratio.least)
			}
		}
		// One message a round trip.
		if got := rate("confirm-each", "10ms"); got > 110 {
			r.t.Errorf("%s: %.0f messages a second, each confirmed over 10 ms, are more than the latency lets through",
				broker, got)
		}
	}
}

// proxied checks that the proxy had every connection of the proxied broker, and none of the other: one for each message
// where the mode makes one, at least one for each task with another mode.
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

// The study of prefetch on two nodes of a cluster: queues are where each case says, and the table reads as in the
// study.
func TestMatrixPrefetch(t *testing.T) {
	nodes, api := strings.Split(variable(t, "LOCKSTEP_RABBITMQ3_URLS"), ","),
		managementOf(t, "LOCKSTEP_RABBITMQ3_MANAGEMENT")
	dir := t.TempDir()
	ctl := shipped(t, dir, "prefetch.cue", "--quick", "--set",
		fmt.Sprintf("brokers.rabbit.options.urls=[%q,%q]", nodes[0], nodes[1]))
	seen := map[string]string{} // node by queue
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
	if code := ctl.Leaves(); code != 0 {
		t.Errorf("ctl left with %d, want 0", code)
	}
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
		if row == nil ||
			!regexp.MustCompile(`^ *([0-9,.]+ balanced|[0-9,.]+ / [0-9,.]+)( [a-z-]+)* *$`).MatchString(row[1]) {
			t.Errorf("%s: the table has %q, want a rate and balanced, or send / receive", task.Cell.Name(), row)
		}
	}
	// The one case of which every machine can tell how it ends: one message at a time over two nodes.
	slowest := r.outcomes[len(r.outcomes)-1]
	if caseOf(r.plan.Cells[slowest.Index]) != "acks, prefetch 1" || slowest.Values["throughput"].Flags == nil {
		t.Errorf("%s: receiving one at a time keeps pace with sending without waiting: %+v", r.name(slowest),
			slowest.Values["throughput"])
	}
	api.nothingLeft(r.plan.ID)
}

func caseOf(c plan.Cell) string {
	text, _ := c.Coordinate("case")
	return text
}
