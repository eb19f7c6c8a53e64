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

	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
	"example.org/lockstep/lockstep/test/eventstored/server"
)

// standInAddress makes this test binary run the stand-in for EventStoreDB.
const standInAddress = "LOCKSTEP_TEST_EVENTSTORE_ADDRESS"

func TestMain(m *testing.M) {
	if address := os.Getenv(standInAddress); address != "" {
		serve(address)
	}
	os.Exit(m.Run())
}

// serve runs a stand-in until standard input is closed, which happens when the parent ends.
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

// standIn starts a stand-in in a separate process. It returns when the stand-in responds, with a function to kill it.
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

// reached returns options for a stand-in at an address. more is JSON that is merged into them.
func reached(t testing.TB, address, more string) json.RawMessage {
	t.Helper()
	return labtest.Options(t, map[string]any{"url": "esdb://" + address + "?tls=false"}, more)
}

var dead = json.RawMessage(`{"url": "esdb://127.0.0.1:1?tls=false"}`)

// given is the variable with the server under test: the lab's stand-in, or an EventStoreDB without TLS.
const given = "LOCKSTEP_EVENTSTORE_URL"

// TestStandInConformance runs the suite with a stand-in in a separate process. It is not restarted, because its streams
// are in memory, and the driver declares that EventStoreDB keeps them on disk.
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
				Reject:       &drivertest.Rejection{Size: maxAppendSize + 1},
				NoQueueDepth: true, // the server reports the lag of groups instead
			})
		}
	}
	single := `{"strategy": "DispatchToSingle", "maxCount": 100000, "concurrency": 7, "resilience": "none"}`
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
