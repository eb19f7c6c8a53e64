package all

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"example.org/lockstep/lockstep/pkg/drivers"
)

var update = flag.Bool("update", false, "write the reference page")

// configurations are the options, besides the address, that change the meaning of a confirm or a guarantee.
var configurations = map[string][]string{
	"activemq":   {``},
	"artemis":    {``},
	"eventstore": {``, `urls: ["esdb://n1:2113", "esdb://n2:2113", "esdb://n3:2113"]`, `maxCount: 1000`},
	"kafka": {``, `acks: 1`, `idempotence: false`, `replicationFactor: 3`,
		`replicationFactor: 3, minInSyncReplicas: 2`, `topic: "flush.messages": 1`},
	"loopback": {``},
	"mongodb":  {``, `w: 1`, `w: 1, journal: false`, `url: "mongodb://n1,n2,n3/?replicaSet=rs0"`},
	"nats": {``, `storage: "memory"`, `replicas: 3`, `retention: "limits"`, `retention: "workqueue"`, `embedded: true`,
		`embedded: true, sync: "always"`},
	"rabbitmq": {``, `queue: durable: false`, `queue: maxLength: 1000`, `queue: type: "quorum"`, `queue: type: "stream"`,
		`urls: ["amqp://n1", "amqp://n2", "amqp://n3"]`, `urls: ["amqp://n1", "amqp://n2", "amqp://n3"], queue: type: "quorum"`,
		`urls: ["amqp://n1", "amqp://n2", "amqp://n3"], management: "http://n1:15672", policy: "ha-mode": "all"`},
	"sqs": {`region: "eu-west-1"`, `fifo: true`, ``},
}

const referenceStart = `# Drivers

This page lists what the confirm of each broker means, and which guarantees Lockstep checks.
It is generated from the declarations of the drivers. ` + "`ctl drivers NAME`" + ` prints all options and metrics of one driver.

The line ` + "`Confirm`" + ` above a table states the meaning for its rows.
Compare only rows with equal meanings: a confirm from memory is faster than one from disk.

The guarantees apply to persistent messages in mode ` + "`confirm-window`" + `, if consumers acknowledge each message:

- **kept**: no message that was confirmed is lost.
- **kept unconfirmed**: no message that was sent is lost while its link lasts, even without a confirm.
- **once**: no message is received twice while no link breaks.
- **ordered**: messages of one publisher to one queue are received in the order of publishing.

A cell whose broker breaks one of them is ` + "`invalid`" + `. Messages are counted in any case.
If a link breaks, "sent again by" is who publishes the messages without a confirm again (option ` + "`resilience`" + `).
`

// TestReferenceOfDrivers proves that docs/reference/drivers.md has the declarations of all drivers.
func TestReferenceOfDrivers(t *testing.T) {
	text := referenceStart
	for _, name := range drivers.Names() {
		d, err := drivers.Lookup(name)
		if err != nil || len(configurations[name]) == 0 {
			t.Fatalf("driver %s: no configurations, %v", name, err)
		}
		text += fmt.Sprintf("\n## %s\n\n%s\n", name, strings.Join(strings.Fields(d.Info().Doc), " "))
		table := ""
		for i, options := range configurations[name] {
			declared, err := declaration(d.Info(), options)
			if err != nil {
				t.Errorf("driver %s, options %s: %v", name, options, err)
				continue
			}
			if i == 0 {
				by := map[drivers.Resilience]string{drivers.ByGuide: "Lockstep", drivers.ByLibrary: "the client library"}
				text += fmt.Sprintf("Sent again by: %s.\n", strings.TrimSpace(by[declared.Resilience]+" "))
			}
			what := "defaults"
			if options != "" {
				what = "`" + options + "`"
			}
			g := declared.Guarantees
			table += fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", what, declared.Label, yes(g.ConfirmedKept), yes(g.SentKept),
				yes(g.NoDuplicates), yes(g.Ordered))
		}
		text += "\n| options | confirm | kept | kept unconfirmed | once | ordered |\n|---|---|---|---|---|---|\n" + table
	}
	const page = "../../../docs/reference/drivers.md"
	if *update {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if stored, err := os.ReadFile(page); err != nil || string(stored) != text {
		t.Errorf("docs/reference/drivers.md differs from the declarations (%v); update it: go test ./pkg/drivers/all -update", err)
	}
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "–"
}

// declaration returns the declaration for options, with the address of the driver's example unless they have their own.
func declaration(info drivers.Info, options string) (d drivers.Declaration, err error) {
	use := drivers.Use{Mode: drivers.ConfirmWindow, MaxInFlight: 100, Persistent: true, Ack: drivers.AckEach, Prefetch: 100,
		Queues: 1, Subscriptions: 1, Bindings: 1, Publishers: 1, Consumers: 1}
	examples := []string{info.Example, ""}
	if regexp.MustCompile(`\b(urls?|region|embedded):`).MatchString(options) {
		slices.Reverse(examples)
	}
	for _, example := range examples {
		ctx := cuecontext.New()
		var text []byte
		text, err = ctx.CompileString(info.Schema).LookupPath(cue.ParsePath("#Options")).
			Unify(ctx.CompileString(example)).Unify(ctx.CompileString(options)).MarshalJSON()
		if err != nil {
			continue
		}
		if d = info.Declare(json.RawMessage(text), use); len(d.Rejections) == 0 && len(d.Capabilities.Modes) > 0 {
			return d, nil
		}
		err = fmt.Errorf("rejected: %v", d.Rejections)
	}
	return d, err
}
