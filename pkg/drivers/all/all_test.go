package all

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// A program without one of the drivers would reject documented matrices.
func TestEveryDriverIsLinked(t *testing.T) {
	if got, want := drivers.Names(), []string{"activemq", "artemis", "eventstore", "kafka", "loopback", "mongodb",
		"nats", "rabbitmq", "sqs"}; !slices.Equal(got, want) {
		t.Errorf("linked drivers are %v, want %v", got, want)
	}
}

// Every driver declares its metrics. A metric that only one broker has belongs to its driver, unless hosts report it.
// Equal names have equal units, because Register panics otherwise.
func TestMetricsAreDeclared(t *testing.T) {
	having := map[string][]string{}
	for _, name := range drivers.Names() {
		d, err := drivers.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Info().Metrics) == 0 {
			t.Errorf("driver %s declares no metrics", name)
		}
		for _, m := range d.Info().Metrics {
			having[m.Name] = append(having[m.Name], name)
		}
	}
	hosts := []string{drivers.MetricRSS, drivers.MetricDiskRead, drivers.MetricDiskWrite, drivers.MetricNetIn,
		drivers.MetricNetOut}
	for _, m := range drivers.SharedMetrics() {
		if len(having[m.Name]) < 2 && !slices.Contains(hosts, m.Name) {
			t.Errorf("metric %s is shared, but only these drivers have it: %v", m.Name, having[m.Name])
		}
	}
}

// A secret option without a mark would be in every record.
func TestSecretOptionsAreMarked(t *testing.T) {
	secret := regexp.MustCompile(`(?i)^\s*\w*(pass|pwd|secret|token|accesskey|apikey|privatekey)\w*[?!]?:.*string`)
	marked := 0
	for _, name := range drivers.Names() {
		d, err := drivers.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(d.Info().Schema) {
			is := strings.Contains(line, "@secret()")
			if secret.MatchString(line) && !is {
				t.Errorf("the schema of driver %s does not mark %q with @secret()", name, strings.TrimSpace(line))
			}
			if is {
				marked++
			}
		}
	}
	if marked < 7 {
		t.Errorf("only %d options are marked", marked)
	}
}
