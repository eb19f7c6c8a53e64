// Package repo tests the repository itself: the direction of imports, and the documentation. It starts no programs.
package repo

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// allowed lists the packages of Lockstep that each package may import. ARCHITECTURE.md draws it. Add a new package here
// and there.
var allowed = map[string][]string{
	"internal/display":   {},
	"internal/plan":      {"pkg/drivers"},
	"internal/rules":     {"internal/display", "internal/plan"},
	"internal/record":    {},
	"internal/clock":     {},
	"internal/files":     {},
	"internal/procs":     {},
	"internal/terminal":  {"internal/display"},
	"internal/stats":     {},
	"internal/sampling":  {"internal/display", "internal/stats", "internal/plan"},
	"internal/compare":   {"internal/sampling", "internal/stats", "internal/plan"},
	"pkg/drivers":        {},
	"schema":             {},
	"internal/netsim":    {"internal/clock", "internal/record"},
	"internal/matrix":    {"internal/display", "internal/sampling", "internal/rules", "internal/plan", "pkg/drivers", "schema"},
	"internal/translate": {"internal/plan"},
	"internal/schedule":  {"internal/plan"},
	"internal/engine":    {"internal/plan", "internal/record", "internal/clock", "pkg/drivers"},
	"internal/judge": {"internal/display", "internal/rules", "internal/plan", "internal/record",
		"internal/clock", "internal/stats", "pkg/drivers"},
	"internal/runs": {"internal/judge", "internal/files", "internal/sampling", "internal/plan",
		"internal/record"},
	"internal/sink": {"internal/plan", "internal/record", "pkg/drivers"},
	"internal/history": {"internal/files", "internal/compare", "internal/history/change", "internal/runs",
		"internal/sampling", "internal/rules", "internal/plan", "internal/stats"},
	"internal/history/change": {"internal/stats"},
	"internal/report": {"internal/display", "internal/sampling", "internal/compare", "internal/stats",
		"internal/judge", "internal/rules", "internal/plan"},
	"internal/report/chart": {},
	"internal/runview": {"internal/wire", "internal/sampling", "internal/plan",
		"internal/record"},
	"internal/report/page": {"internal/display", "internal/compare", "internal/report",
		"internal/report/chart", "internal/judge", "internal/runs", "internal/record", "internal/plan"},
	"internal/digest": {"internal/display", "internal/compare", "internal/history",
		"internal/history/change", "internal/stats", "internal/plan", "internal/report"},
	"internal/bundle": {"internal/report", "internal/runs", "internal/sampling",
		"internal/plan"},
	"internal/export": {"internal/judge", "internal/runs", "internal/record", "internal/plan"},
	"internal/wire": {"internal/wire/lease", "internal/wire/keys", "internal/wire/subject",
		"internal/schedule", "internal/plan", "internal/record", "internal/clock"},
	"internal/wire/lease":   {},
	"internal/wire/keys":    {"internal/files", "internal/wire/subject"},
	"internal/wire/subject": {},
	"internal/agent": {"internal/wire/keys", "internal/procs", "internal/wire", "internal/engine",
		"internal/netsim", "internal/clock", "internal/plan", "internal/record", "pkg/drivers"},
	"internal/controller": {"internal/wire/lease", "internal/display", "internal/files", "internal/procs", "internal/report",
		"internal/sampling", "internal/runview", "internal/history", "internal/schedule", "internal/wire",
		"internal/matrix", "internal/report/page", "internal/judge", "internal/runs", "internal/sink", "internal/clock",
		"internal/rules", "internal/plan", "internal/record"},
	"internal/web": {"internal/display", "internal/runview", "internal/history", "internal/compare",
		"internal/stats", "internal/wire", "internal/schedule", "internal/runs", "internal/report",
		"internal/report/chart", "internal/report/page", "internal/plan"},
	"internal/metrics": {"internal/wire", "internal/plan"},
	"internal/cli": {"internal/wire/keys", "internal/sampling", "internal/display", "internal/files",
		"internal/procs", "internal/stats", "internal/runview", "internal/bundle", "internal/export",
		"internal/history", "internal/history/change", "internal/web", "internal/metrics", "internal/schedule",
		"internal/controller", "internal/agent", "internal/compare", "internal/report", "internal/report/page",
		"internal/runs", "internal/matrix", "internal/sink", "internal/terminal", "internal/translate", "internal/wire",
		"internal/rules", "internal/plan", "pkg/drivers", "pkg/drivers/external", "internal/digest"},
	"internal/schematest":          {"pkg/drivers"},
	"pkg/drivers/drivertest":       {"pkg/drivers", "pkg/drivers/kit", "internal/schematest"},
	"pkg/drivers/eventstore":       {"pkg/drivers", "pkg/drivers/kit", "pkg/drivers/requests"},
	"pkg/drivers/external":         {"internal/procs", "pkg/drivers", "pkg/drivers/kit"},
	"pkg/drivers/kit":              {"pkg/drivers"},
	"pkg/drivers/kafka":            {"pkg/drivers", "pkg/drivers/kit"},
	"pkg/drivers/loopback":         {"pkg/drivers", "pkg/drivers/kit"},
	"pkg/drivers/nats":             {"pkg/drivers", "pkg/drivers/kit"},
	"pkg/drivers/rabbitmq":         {"pkg/drivers", "pkg/drivers/kit"},
	"pkg/drivers/requests":         {"pkg/drivers", "pkg/drivers/kit"},
	"pkg/drivers/mongodb":          {"pkg/drivers", "pkg/drivers/kit", "pkg/drivers/requests"},
	"pkg/drivers/internal/amqp10":  {"pkg/drivers", "pkg/drivers/kit"},
	"pkg/drivers/internal/labtest": {"pkg/drivers", "internal/schematest"},
	"pkg/drivers/artemis":          {"pkg/drivers", "pkg/drivers/kit", "pkg/drivers/internal/amqp10"},
	"pkg/drivers/activemq":         {"pkg/drivers", "pkg/drivers/kit", "pkg/drivers/internal/amqp10"},
	"pkg/drivers/sqs":              {"pkg/drivers", "pkg/drivers/kit", "pkg/drivers/requests"},
	"pkg/drivers/all": {"pkg/drivers/activemq", "pkg/drivers/artemis", "pkg/drivers/eventstore",
		"pkg/drivers/kafka", "pkg/drivers/loopback", "pkg/drivers/mongodb", "pkg/drivers/nats", "pkg/drivers/rabbitmq",
		"pkg/drivers/sqs"},
	"deploy/packages/man": {"internal/cli"},
	"cmd/ctl":             {"internal/cli", "pkg/drivers/all"},
	"cmd/controller":      {"internal/cli", "pkg/drivers/all"},
	"cmd/agent":           {"internal/cli", "pkg/drivers/all"},
}

// homes lists the only packages that may import a heavy dependency.
var homes = map[string][]string{
	"github.com/Azure/go-amqp": {"pkg/drivers/internal/amqp10"},
	"cuelang.org/go":           {"internal/matrix", "internal/schematest"},
	"github.com/kurrent-io":    {"pkg/drivers/eventstore"},
	"github.com/HdrHistogram":  {"internal/record"},
	"github.com/influxdata":    {"internal/sink"},
	"github.com/prometheus":    {"internal/metrics"},
	"github.com/nats-io": {"internal/wire", "internal/wire/lease", "internal/wire/keys",
		"pkg/drivers/nats"},
	"github.com/segmentio/kafka-go":  {"pkg/drivers/kafka"},
	"github.com/twmb/franz-go":       {"pkg/drivers/kafka"},
	"github.com/rabbitmq/amqp091-go": {"pkg/drivers/rabbitmq"},
	"go.mongodb.org/mongo-driver":    {"pkg/drivers/mongodb"},
	"github.com/aws":                 {"pkg/drivers/sqs"},
	"github.com/clipperhouse":        {"internal/display"},
	"github.com/goccy/go-yaml":       {"internal/translate"},
	"github.com/parquet-go":          {"internal/export"},
	"github.com/spf13/cobra":         {"internal/cli", "deploy/packages/man"},
	"github.com/coreos/go-systemd":   {"internal/cli"},
	"github.com/netresearch/go-cron": {"internal/schedule"},
	"go.etcd.io/bbolt":               {"internal/history"},
	"google.golang.org/grpc":         {"pkg/drivers/eventstore"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func TestImportsGoDownOnly(t *testing.T) {
	for _, p := range product(t) {
		name := strings.TrimPrefix(p.ImportPath, "example.org/lockstep/lockstep/")
		may, known := allowed[name]
		if !known {
			t.Errorf("%s is on no level: put it into ARCHITECTURE.md and into this test", name)
			continue
		}
		for _, i := range p.Imports {
			if ours, is := strings.CutPrefix(i, "example.org/lockstep/lockstep/"); is && !slices.Contains(may, ours) {
				t.Errorf("%s imports %s, which is not below it", name, ours)
			}
			for dependency, only := range homes {
				if strings.HasPrefix(i, dependency) && !slices.Contains(only, name) {
					t.Errorf("%s imports %s, which lives in %v only", name, i, only)
				}
			}
		}
	}
}

// product returns the packages of Lockstep without those of tests.
func product(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	var all []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			t.Fatalf("read package list: %v", err)
		}
		if !strings.HasPrefix(p.ImportPath, "example.org/lockstep/lockstep/test") && p.ImportPath != "example.org/lockstep/lockstep/matrices" {
			all = append(all, p)
		}
	}
	if len(all) < 10 {
		t.Fatalf("found only %d packages: the listing is not what this test expects", len(all))
	}
	return all
}
