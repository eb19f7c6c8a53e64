package drivertest

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// brokenDriver makes TestBrokenDriver run the suite for the driver with that name, in a separate process.
const brokenDriver = "LOCKSTEP_TEST_BROKEN_DRIVER"

// brokenDrivers are drivers with one fault each.
func brokenDrivers() map[string]drivers.Driver {
	return map[string]drivers.Driver{
		"leaking": faulty{publisher: func(p drivers.Publisher, _ drivers.PublisherSpec) drivers.Publisher {
			go leftBehind()
			return p
		}},
		"duplicating": option(`"duplicate":20`),
		"whole":       faulty{},
	}
}

// leftBehind never ends.
func leftBehind() { <-make(chan struct{}) }

// TestBrokenDriver is started by TestRunAttributes.
func TestBrokenDriver(t *testing.T) {
	d, chosen := brokenDrivers()[os.Getenv(brokenDriver)]
	if !chosen {
		t.Skip("TestRunAttributes runs it")
	}
	h := Harness{
		Driver: d, Options: json.RawMessage(`{"name":"self"}`), Cut: func() { loopback.Cut("self") }, NoNetwork: true,
		Subset: []string{"info", "mode", "order", "fan-out", "cut"},
	}
	if os.Getenv(brokenDriver) == "leaking" {
		h.leakWait = 2 * time.Second
	}
	Run(t, h)
}

// A failure is reported by the right check only. A goroutine that any check leaves running is found at the end, by its
// name.
func TestRunAttributes(t *testing.T) {
	for name, want := range map[string]struct {
		failed []string
		said   string
	}{
		"leaking":     {[]string{"leaks"}, "drivertest.leftBehind"},
		"duplicating": {[]string{"parallel", "parallel/fan-out", "parallel/mode/confirm-window"}, "arrives 2 times"},
		"whole":       {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBrokenDriver$", "-test.v",
				"-test.count=1")
			c.Env = append(os.Environ(), brokenDriver+"="+name)
			out, err := c.CombinedOutput()
			text := string(out)
			if failed := err != nil; failed != (want.failed != nil) {
				t.Fatalf("the process ends with %v:\n%s", err, text)
			}
			for _, check := range want.failed {
				if !strings.Contains(text, "--- FAIL: TestBrokenDriver/"+check+" (") {
					t.Errorf("%s is not reported as failed:\n%s", check, text)
				}
			}
			if !strings.Contains(text, want.said) {
				t.Errorf("the output does not contain %q:\n%s", want.said, text)
			}
			for _, other := range []string{"parallel/info", "cut/late"} {
				if !strings.Contains(text, "--- PASS: TestBrokenDriver/"+other+" (") {
					t.Errorf("%s is not reported as passed:\n%s", other, text)
				}
			}
		})
	}
}

// A misspelt name in a subset would silently check nothing.
func TestSubset(t *testing.T) {
	names := func(h Harness) (all []string) {
		chosen, err := h.chosen()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chosen {
			all = append(all, c.name)
		}
		return all
	}
	if got, want := names(Harness{Subset: []string{"binder", "mode/confirm-each"}}),
		[]string{"mode/confirm-each", "binder", "binder/together", "binder/ends"}; !slices.Equal(got, want) {
		t.Errorf("chosen are %q, want %q", got, want)
	}
	whole := names(Harness{})
	if len(whole) != len(checks()) {
		t.Errorf("without a subset %d of %d checks are chosen", len(whole), len(checks()))
	}
	parts := names(Harness{Subset: slices.Concat(MessagePath(), Links())})
	if missing := slices.DeleteFunc(whole, func(name string) bool {
		return slices.Contains(parts,
			name)
	}); !slices.Equal(missing,
		[]string{"existing", "sizes", "ready", "batch", "together", "sessions", "in-process", "in-flight"}) {
		t.Errorf("in neither subset are %q", missing)
	}
	if _, err := (Harness{Subset: []string{"modes"}}).chosen(); err == nil {
		t.Error("a check that does not exist can be chosen")
	}
}

// Harness.Cut breaks the links of every check, and so does a restart.
func TestAlone(t *testing.T) {
	cut, concurrent := Harness{Cut: func() {}}, Harness{Cut: func() {}, Concurrent: true}
	for name, want := range map[string][3]bool{
		"restart": {true, true, true}, "cleanup": {true, true, false}, "in-process": {true, true, true}, "cut/late": {false, true, true},
		"binder/ends": {false, true, true}, "order": {false, false, false},
	} {
		if got := [3]bool{Harness{}.alone(name), cut.alone(name), concurrent.alone(name)}; got != want {
			t.Errorf("%s runs alone: %v, want %v", name, got, want)
		}
	}
}
