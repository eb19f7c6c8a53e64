package eventstore

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"testing"

	"lockstep/pkg/drivers/drivertest"
	"lockstep/pkg/drivers/internal/labtest"
	"lockstep/test/eventstored/server"
)

// standInAddress has this test binary be a stand-in for EventStoreDB instead.
const standInAddress = "LOCKSTEP_TEST_EVENTSTORE_ADDRESS"

func TestMain(m *testing.M) {
	if address := os.Getenv(standInAddress); address != "" {
		serve(address)
	}
	os.Exit(m.Run())
}

// serve runs a stand-in until standard input ends, as it does with the parent.
func serve(address string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s := server.New(server.Options{})
	go func() { _ = s.Serve(l) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// standIn starts a stand-in in a process of its own and returns when it answers, with a way to kill it.
func standIn(t testing.TB, address string) (kill func()) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), standInAddress+"="+address)
	c.Stderr = os.Stderr
	if _, err := c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	gone := false
	kill = func() {
		if !gone {
			gone = true
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	t.Cleanup(func() { kill() })
	labtest.Listening(t, address)
	return kill
}

// reached gives options for a stand-in at an address; more is JSON that is laid over them.
func reached(t testing.TB, address, more string) json.RawMessage {
	t.Helper()
	return labtest.Options(t, map[string]any{"url": "esdb://" + address + "?tls=false"}, more)
}

var dead = json.RawMessage(`{"url": "esdb://127.0.0.1:1?tls=false"}`)

// given is where somebody has started what the suite is to run against: the lab its stand-in, or you an EventStoreDB
// without TLS.
const given = "LOCKSTEP_EVENTSTORE_URL"

// TestStandInConformance is the whole suite against a stand-in in a process of its own. It is not restarted: its
// streams are in memory, while the driver declares what EventStoreDB keeps on disk.
func TestStandInConformance(t *testing.T) {
	address := ""
	if text := os.Getenv(given); text != "" {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", given, err)
		}
		address = u.Host
	} else {
		address = labtest.FreeAddress(t)
		standIn(t, address)
	}
	suite := func(more string, subset ...string) func(t *testing.T) {
		return func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{
				Driver: driver{}, Options: reached(t, address, more), DeadOptions: dead, DeadAddress: "127.0.0.1:1",
				Subset:       subset,
				NoQueueDepth: true, // the server reports the lag of groups instead
			})
		}
	}
	single := `{"strategy": "DispatchToSingle", "maxCount": 100000, "concurrency": 7}`
	t.Run("round-robin", suite(`{}`))
	t.Run("dispatch-to-single", suite(single, slices.Concat(drivertest.MessagePath(),
		[]string{"close", "together", "cut/publisher"})...))
	t.Run("dispatch-to-single-whole", func(t *testing.T) {
		labtest.Long(t)
		suite(single)(t)
	})
}

// inProcess starts a stand-in in this process.
func inProcess(t testing.TB, o server.Options) (s *server.Server, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = server.New(o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, l.Addr().String()
}
