package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestExplainAndDrivers proves that a name is described, and that a wrong one is an error with a suggestion.
func TestExplainAndDrivers(t *testing.T) {
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"explain", "e2e.p99"}, ExitOK, "value e2e.p99, heading \"End-to-end p99\", unit s: "},
		{[]string{"explain", "backlog"}, ExitOK, "flag backlog: consumers did not keep up"},
		{[]string{"explain", "threads"}, ExitOK, "axis threads: Sets publishers.threads and consumers.threads."},
		{[]string{"explain", "confirm-each"}, ExitOK, "confirm-each is a publish mode. confirm-window: up to maxInFlight"},
		{[]string{"explain", "failed"}, ExitOK, "failed: there are no usable numbers"},
		{[]string{"explain", "publishers.maxInFlight"}, ExitOK, "default 1000): confirm-window: maximum number"},
		{[]string{"explain", "e2e.p98"}, ExitBadMatrix, "did you mean \"e2e.p90\"?"},
		{[]string{"explain", "publisher"}, ExitBadMatrix, "did you mean \"publishers\"?"},
		{[]string{"explain", "consumers.prefech"}, ExitBadMatrix, "did you mean \"consumers.prefetch\"?"},
		{[]string{"explain", "xyzxyzxyz"}, ExitBadMatrix, "list all fields: ctl explain"},
		{[]string{"explain"}, ExitOK, "#Matrix: {"},
		{[]string{"drivers"}, ExitOK, "nats "},
		{[]string{"drivers", "nats"}, ExitOK, "#Options: {"},
		{[]string{"drivers", "natz"}, ExitBadMatrix, "did you mean \"nats\"?"},
	} {
		var out, errs bytes.Buffer
		if code := Ctl(t.Context(), x.args, nil, &out, &errs); code != x.code ||
			!strings.Contains(out.String()+errs.String(), x.want) {
			t.Errorf("ctl %s: exit code %d, want %d and %q:\n%s%s", strings.Join(x.args, " "), code, x.code, x.want, &out, &errs)
		}
	}
}
