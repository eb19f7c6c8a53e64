package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestFlagsOfDaemonsFromTheEnvironment(t *testing.T) {
	t.Setenv("LOCKSTEP_NATS_CONFIG", "/etc/nats.conf")
	t.Setenv("LOCKSTEP_LABELS", "zone=a, role=load")
	t.Setenv("LOCKSTEP_VERBOSE", "true")
	t.Setenv("LOCKSTEP_NAME", "theirs")
	var config, name string
	var labels []string
	var verbose bool
	c := &cobra.Command{Use: "daemon", RunE: func(*cobra.Command, []string) error { return nil }}
	c.Flags().StringVar(&config, "nats-config", "", "file")
	c.Flags().StringVar(&name, "name", "", "name")
	c.Flags().StringArrayVar(&labels, "label", nil, "label")
	c.Flags().BoolVar(&verbose, "verbose", false, "log more")
	fromEnvironment(c)
	c.SetArgs([]string{"--name", "mine"})
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	if config != "/etc/nats.conf" || strings.Join(labels, " ") != "zone=a role=load" || !verbose {
		t.Errorf("got nats-config %q, labels %q, verbose %v: not the values of the environment", config, labels, verbose)
	}
	if name != "mine" {
		t.Errorf("name is %q: the command line goes before the environment", name)
	}
	if usage := c.Flags().FlagUsages(); !strings.Contains(usage, "LOCKSTEP_NATS_CONFIG") ||
		!strings.Contains(usage, "LOCKSTEP_LABELS") {
		t.Errorf("the help does not name the variables:\n%s", usage)
	}
}

func TestErrorsListAllInvalidVariables(t *testing.T) {
	t.Setenv("LOCKSTEP_VERBOSE", "perhaps")
	t.Setenv("LOCKSTEP_MANY", "x")
	c := &cobra.Command{Use: "daemon", SilenceErrors: true, SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error { return nil }}
	c.SetOut(io.Discard)
	c.Flags().Bool("verbose", false, "log more")
	c.Flags().Int("many", 0, "how many")
	fromEnvironment(c)
	c.SetArgs(nil)
	err := c.Execute()
	if err == nil || !strings.Contains(err.Error(), `LOCKSTEP_VERBOSE="perhaps"`) ||
		!strings.Contains(err.Error(), `LOCKSTEP_MANY="x"`) {
		t.Errorf("got %v: want both variables named", err)
	}
}

// An invalid flag value is rejected with the valid values, without wording of a Go package.
func TestErrorsOfInvalidFlags(t *testing.T) {
	t.Setenv("LOCKSTEP_REPLICAS", "")
	t.Setenv("LOCKSTEP_STOP_WITHIN", "")
	for _, x := range []struct{ flag, variable, value, want string }{
		{"--replicas", "LOCKSTEP_REPLICAS", "x", "not a number; pass a whole number"},
		{"--replicas", "LOCKSTEP_REPLICAS", "99999999999999999999", "not a number; pass a whole number"},
		{"--stop-within", "LOCKSTEP_STOP_WITHIN", "5", "not a duration; pass a number with its unit, such as 90s or 2m30s"},
		{"--open", "LOCKSTEP_OPEN", "maybe", "not a boolean; pass true or false"},
		{"--record-limit", "LOCKSTEP_RECORD_LIMIT", "x", "not a size; pass for example 4GiB"},
	} {
		var out strings.Builder
		code := Controller(t.Context(), []string{x.flag + "=" + x.value}, nil, &out, &out)
		if want := x.flag + " \"" + x.value + "\": " + x.want; code != ExitBadMatrix ||
			!strings.HasPrefix(out.String(), want) {
			t.Errorf("code %d: %swant %s", code, out.String(), want)
		}
		t.Setenv(x.variable, x.value)
		out.Reset()
		code = Controller(t.Context(), nil, nil, &out, &out)
		if want := "environment variable " + x.variable + "=\"" + x.value + "\": " + x.want; code != ExitBadMatrix ||
			!strings.Contains(out.String(), want) {
			t.Errorf("code %d: %swant %s", code, out.String(), want)
		}
		t.Setenv(x.variable, "")
	}
}

func TestAmountsOfMemory(t *testing.T) {
	for text, want := range map[string]int64{"128MiB": 128 << 20, "4GiB": 4 << 30, "1073741824": 1 << 30, "2GB": 2e9,
		"1.5GiB": 3 << 29,
		"":       0, "4": 0, "4Gi": 0, "-4GiB": 0, "1e300": 0, "NaN": 0, "100s": 0, "65TiB": 0, "0.0000001GiB": 0,
		"100000GiB": 0} {
		var m memory
		if err := m.Set(text); int64(m) != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %d, %v: want %d", text, m, err, want)
		}
	}
}
