package cli

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/plan"
)

func TestObserve(t *testing.T) {
	all, err := observed([]string{"rabbit=port:5672", "rabbit=port:5673", "kafka=command:java -Xmx1g kafka.Kafka",
		"js=pid:7"})
	want := map[string]plan.Processes{"rabbit": {{Port: 5672}, {Port: 5673}},
		"kafka": {{Command: "java -Xmx1g kafka.Kafka"}}, "js": {{PID: 7}}}
	if err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("%v, %v; want %v", all, err, want)
	}
	wrong := []string{"port:5672", "rabbit=5672", "rabbit=port:70000", "rabbit=pid:0", "rabbit=name:x",
		"rabbit=command:", "=port:1"}
	_, err = observed(append(wrong, "a=port:1", "a=port:1"))
	if err == nil {
		t.Fatal("wrong values are taken")
	}
	for _, text := range append(wrong, "a=port:1") {
		if !strings.Contains(err.Error(), "--observe \""+text+"\"") {
			t.Errorf("%v: does not name %q", err, text)
		}
	}
	if !strings.Contains(err.Error(), "write NAME=port:5672") || !strings.Contains(err.Error(), "1 to 65535") ||
		!strings.Contains(err.Error(), "given twice") {
		t.Errorf("%v: no remedy", err)
	}
}

// A command line contains blanks, so only commas separate the observed processes.
func TestObserveFromTheEnvironment(t *testing.T) {
	t.Setenv("LOCKSTEP_OBSERVE", "rabbit=port:5672, kafka=command:java kafka.Kafka")
	var given []string
	c := &cobra.Command{Use: "daemon", RunE: func(*cobra.Command, []string) error { return nil }}
	observeFlag(c, &given)
	fromEnvironment(c)
	c.SetArgs(nil)
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	all, err := observed(given)
	if err != nil || len(all) != 2 || all["kafka"][0].Command != "java kafka.Kafka" {
		t.Errorf("%v, %v", all, err)
	}
}
