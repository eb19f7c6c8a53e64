// Package labtest starts brokers for a single test in the lab that runs the tests. It is for tests that kill, pause or
// restart brokers.
package labtest

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

const (
	controlVariable  = "LOCKSTEP_LAB_CONTROL"
	requiredVariable = "LOCKSTEP_LAB"
)

// startTimeout includes the download of programs.
const startTimeout = 10 * time.Minute

// Instance is one instance of a part of the lab.
type Instance struct {
	t         testing.TB
	variables map[string]string
}

// Own starts another instance of a part and stops it when the test ends. Without a lab the test is skipped, or fails if
// a lab is required.
func Own(t testing.TB, part string) *Instance {
	t.Helper()
	control := os.Getenv(controlVariable)
	if control == "" && os.Getenv(requiredVariable) == "required" {
		t.Fatalf("start %s: %s is not set although %s is \"required\"", part, controlVariable, requiredVariable)
	}
	if control == "" {
		t.Skipf("needs a %s of its own: run \"go run ./test/lab run -- go test PACKAGE\"", part)
	}
	text := call(t, control, "up", url.Values{"part": {part}})
	i := &Instance{t: t, variables: map[string]string{}}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSuffix(line, "\n"), "="); found {
			i.variables[name] = value
		}
	}
	instance := i.Variable("LOCKSTEP_LAB_INSTANCE")
	t.Cleanup(func() { call(t, control, "down", url.Values{"part": {instance}}) })
	return i
}

// Variable returns a variable of this instance. The names are those of the part.
func (i *Instance) Variable(name string) string {
	i.t.Helper()
	value, found := i.variables[name]
	if !found {
		i.t.Fatalf("the lab's instance has no variable %s: it has %v", name, i.variables)
	}
	return value
}

// Process returns the name of a broker for Control. The first broker has number 1.
func (i *Instance) Process(number int) string {
	i.t.Helper()
	names := strings.Split(i.Variable("LOCKSTEP_LAB_PROCESSES"), ",")
	if number < 1 || number > len(names) {
		i.t.Fatalf("the lab's instance has no broker %d: it has %v", number, names)
	}
	return names[number-1]
}

// Control makes the lab kill, start, restart, pause or resume a broker.
func Control(t testing.TB, action, process string) {
	t.Helper()
	control := os.Getenv(controlVariable)
	if control == "" {
		t.Fatalf("%s %s: %s is not set", action, process, controlVariable)
	}
	call(t, control, action, url.Values{"name": {process}})
}

// call sends a request and returns the response. It leaves no connection open, for tests that count goroutines.
func call(t testing.TB, control, action string, query url.Values) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, control+"/"+action+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatalf("call the lab: %v", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("call the lab: %v", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("read the lab's answer: %v", err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the lab could not %s %s: %s: %s", action, query.Encode(), response.Status, text)
	}
	return string(text)
}
