package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestDaemonsTakeTheirFlagsFromTheEnvironment(t *testing.T) {
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
		t.Errorf("got nats-config %q, labels %q, verbose %v: not what the environment says", config, labels, verbose)
	}
	if name != "mine" {
		t.Errorf("name is %q: the command line goes before the environment", name)
	}
	if usage := c.Flags().FlagUsages(); !strings.Contains(usage, "LOCKSTEP_NATS_CONFIG") || !strings.Contains(usage, "LOCKSTEP_LABELS") {
		t.Errorf("the help does not name the variables:\n%s", usage)
	}
}

func TestBadVariablesAreAllNamed(t *testing.T) {
	t.Setenv("LOCKSTEP_VERBOSE", "perhaps")
	t.Setenv("LOCKSTEP_MANY", "x")
	c := &cobra.Command{Use: "daemon", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
	c.SetOut(io.Discard)
	c.Flags().Bool("verbose", false, "log more")
	c.Flags().Int("many", 0, "how many")
	fromEnvironment(c)
	c.SetArgs(nil)
	err := c.Execute()
	if err == nil || !strings.Contains(err.Error(), `LOCKSTEP_VERBOSE="perhaps"`) || !strings.Contains(err.Error(), `LOCKSTEP_MANY="x"`) {
		t.Errorf("got %v: want both variables named", err)
	}
}
