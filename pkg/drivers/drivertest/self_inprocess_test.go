package drivertest

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// namedBroker returns the options of a broker.
func namedBroker(name string) json.RawMessage {
	return schematest.FillNamed("loopback", json.RawMessage(`{"name":`+strconv.Quote(name)+`}`))
}

func TestInProcess(t *testing.T) {
	opened := 0
	private := faulty{open: func(json.RawMessage) (json.RawMessage, error) {
		opened++
		return namedBroker("private-" + strconv.Itoa(opened)), nil
	}}
	kept := faulty{open: func(json.RawMessage) (json.RawMessage, error) { // each session opens one that is never closed
		_, err := loopback.Driver{}.Open(context.Background(), namedBroker("kept"), drivers.Env{})
		return namedBroker("kept"), err
	}}
	for name, x := range map[string]struct {
		driver faulty
		passes bool
	}{
		"is shared until the last session closes": {faulty{}, true},
		"is another one for each session":         {private, false},
		"stays after the last session":            {kept, false},
		"ends with the first session":             {faulty{closes: func(*faultySession) { loopback.Cut("self") }}, false},
		"loses its queues when any session closes": {faulty{closes: func(s *faultySession) {
			_ = s.Session.Teardown(context.Background(), s.topology)
		}}, false},
	} {
		if r := runOne(t, x.driver, "in-process"); (len(r.failures) == 0) != x.passes || r.inapplicable != "" {
			t.Errorf("a broker that %s: %v %s", name, r.failures, r.inapplicable)
		}
	}
	elsewhere := faulty{declare: func(d *drivers.Declaration) { d.Capabilities.InProcess = false }}
	if r := runOne(t, elsewhere, "in-process"); r.inapplicable == "" {
		t.Error("the check applies to a broker in another process")
	}
}
