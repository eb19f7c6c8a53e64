package test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	_ "example.org/lockstep/lockstep/pkg/drivers/activemq"
	_ "example.org/lockstep/lockstep/pkg/drivers/artemis"

	"example.org/lockstep/lockstep/test/lab/labtest"
	"example.org/lockstep/lockstep/test/process"
)

// openSession opens a session with a broker, or returns the error.
func openSession(t *testing.T, driver, options string) (drivers.Session, error) {
	t.Helper()
	d, err := drivers.Lookup(driver)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return d.Open(ctx, schematest.Fill(t, d, options), drivers.Env{
		Dial: new(net.Dialer).DialContext, Log: slog.New(slog.DiscardHandler),
		Event: func(drivers.EventKind, string) {},
	})
}

// activeBroker returns the address of the active broker, the other address, and the number of the active process in the
// lab.
func activeBroker(t *testing.T, driver string, urls []string) (first, second string, number int) {
	t.Helper()
	process.Eventually(t, "a session with one broker of the pair", func() bool {
		for i, url := range urls {
			session, err := openSession(t, driver, fmt.Sprintf(`{"url": %q, "connectTimeout": "10s"}`, url))
			if err == nil {
				_ = session.Close()
				first, second, number = url, urls[1-i], i+1
				return true
			}
		}
		return false
	})
	return first, second, number
}

// leftoverCheck returns a check that no object with the run's names is left at the broker.
func leftoverCheck(t *testing.T, driver, options string) func(run string) {
	return func(run string) {
		t.Helper()
		session, err := openSession(t, driver, options)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = session.Close() }()
		cleaner, ok := session.(drivers.Cleaner)
		if !ok {
			t.Fatalf("driver %s: got a session without drivers.Cleaner, want one that lists leftovers", driver)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		left, err := cleaner.Leftovers(ctx, "lockstep-"+run)
		if err != nil || len(left) > 0 {
			t.Errorf("leftovers of the run at the broker: got %v, %v, want none", left, err)
		}
	}
}

// The primary is killed. The backup becomes active with its replica, and the primary becomes active again when it
// returns. So there are two failovers in one cell, and no confirmed message is lost. The test is not parallel: a
// primary that starts slowly beside other tests fails back while the pair is not in sync.
func TestArtemisPrimaryKilled(t *testing.T) {
	own := labtest.Own(t, "artemis-pair")
	urls := strings.Split(own.Variable("LOCKSTEP_ARTEMIS_PAIR_URLS"), ",")
	first, second, number := activeBroker(t, "artemis", urls)
	options := fmt.Sprintf(`{"urls": [%q, %q], "ha": "replication"}`, first, second)
	o := runWithKill(t, fault{driver: "artemis", options: options, process: own.Process(number),
		clean: leftoverCheck(t, "artemis", options)})
	if o.Ledger.LostConfirmed > 0 {
		t.Errorf("lost messages that the backup had confirmed: got %d, want 0", o.Ledger.LostConfirmed)
	}
	if n := o.Values["reconnects"].Number; n < 2 {
		t.Errorf("reconnects of a publisher and a consumer: got %v, want at least 2", n)
	}
}

// The active broker is killed, and the other one continues with the same store.
func TestActiveMQActiveKilled(t *testing.T) {
	t.Parallel()
	own := labtest.Own(t, "activemq-pair")
	urls := strings.Split(own.Variable("LOCKSTEP_ACTIVEMQ_PAIR_URLS"), ",")
	consoles := strings.Split(own.Variable("LOCKSTEP_ACTIVEMQ_PAIR_JOLOKIAS"), ",")
	first, second, number := activeBroker(t, "activemq", urls)
	options := fmt.Sprintf(`{"urls": [%q, %q], "ha": "shared-store", "jolokia": [%q, %q]}`,
		first, second, consoles[0], consoles[1])
	o := runWithKill(t, fault{driver: "activemq", options: options, process: own.Process(number),
		clean: leftoverCheck(t, "activemq", options)})
	if o.Ledger.LostConfirmed > 0 {
		t.Errorf("lost messages that were confirmed as stored: got %d, want 0", o.Ledger.LostConfirmed)
	}
}
