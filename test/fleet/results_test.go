package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const influxToken = "a-token-of-test-fleet"

// shown installs InfluxDB on the first host, with the lab's program instead of packages, and runs a matrix that writes
// its points there. Grafana is not available: only the files of its role are checked.
func shown(t *testing.T, r *rig) {
	if os.Getenv("LOCKSTEP_LONG") == "" {
		t.Skip("takes minutes: LOCKSTEP_LONG=1 does it")
	}
	h := r.hosts[0]
	r.on(h, "groupadd --force grafana; install -m 755 "+
		filepath.Join(lab(t, "LOCKSTEP_RELEASES"), "influxdb", "influxd")+" /opt/influxd")
	inventory := filepath.Join(r.dir, "results.yml")
	r.write(inventory, fmt.Sprintf(`
all:
  vars:
    influxdb_packages: []
    influxdb_program: /opt/influxd
    influxdb_bind: %[1]s:8086
    influxdb_password: %[2]s
    influxdb_token: %[3]s
    grafana_package: ""
    grafana_key_url: ""
    grafana_influxdb_url: http://%[1]s:8086
    grafana_influxdb_token: %[3]s
influxdb: {hosts: {h1: }}
grafana: {hosts: {h1: }}
`, h.address, password, influxToken))
	args := []string{"-i", inventory, "--limit", "h1"}
	r.playOn(t, 1, "site.yml", args...)
	if n := r.playOn(t, 1, "site.yml", args...); n != 0 {
		t.Errorf("a second time site.yml changed %d things", n)
	}

	t.Run("influxdb", func(t *testing.T) { r.points(t, "http://"+h.address+":8086") })
	t.Run("grafana, written only", func(t *testing.T) { r.grafana(t, h) })

	r.playOn(t, 1, "site.yml", append(args, "-e", "influxdb_state=absent")...)
	r.on(h, "rm -r /etc/grafana /var/lib/grafana") // uninstall.yml leaves Grafana
	if left := r.on(h,
		"ls -d /var/lib/influxdb 2>/dev/null; grep '^influxdb:' /etc/passwd; for p in /proc/[0-9]*; do readlink $p/exe; done | grep influxd; true"); left != "" {
		t.Errorf("of InfluxDB there is still\n%s", left)
	}
}

// points runs a matrix and reads the number of sent messages from InfluxDB.
func (r *rig) points(t *testing.T, url string) {
	t.Helper()
	target := filepath.Join(t.TempDir(), "influx.json")
	text, err := json.Marshal(map[string]string{"url": url, "org": "lockstep", "bucket": "lockstep",
		"token": "${env:FLEET_INFLUX_TOKEN}"})
	if err != nil {
		t.Fatal(err)
	}
	r.write(target, string(text))
	t.Setenv("FLEET_INFLUX_TOKEN", influxToken)
	outcomes := r.run(t, r.matrix("points", fmt.Sprintf(`
brokers: bus: {driver: "nats", options: {urls: [%q]}}
axes: mode: ["confirm-each"]
repeat: 1
cell: {
	axis: _
	publishers: {mode: axis.mode, nodes: 1, rate: 100}
	consumers: nodes: 1
	warmup: "500ms"
	measure: "2s"
}
tables: [{rows: ["mode"], values: ["sent"]}]
`, r.broker(t, r.bridge()))), "--influx", target)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	query := fmt.Sprintf(`from(bucket: "lockstep") |> range(start: -1h) |> filter(fn: (r) => r._measurement == "lockstep_total" and r.run == %q and r._field == "sent")
 |> group() |> sum() |> keep(columns: ["_value"])`, outcomes[0].Run)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/v2/query?org=lockstep",
		strings.NewReader(query))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Token "+influxToken)
	request.Header.Set("Content-Type", "application/vnd.flux")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("ask InfluxDB: %s, %v\n%s", response.Status, err, answer)
	}
	if want := fmt.Sprintf(",%d\r\n", outcomes[0].Ledger.Sent); !strings.Contains(string(answer), want) {
		t.Errorf("InfluxDB knows of\n%s\nmessages, want %d", answer, outcomes[0].Ledger.Sent)
	}
}

// grafana checks the files that Grafana would read.
func (r *rig) grafana(t *testing.T, h *host) {
	t.Helper()
	var sources struct {
		Datasources []struct {
			URL    string `yaml:"url"`
			Secure struct {
				Token string `yaml:"token"`
			} `yaml:"secureJsonData"`
		} `yaml:"datasources"`
	}
	if err := yaml.Unmarshal([]byte(r.on(h, "cat /etc/grafana/provisioning/datasources/lockstep.yaml")),
		&sources); err != nil {
		t.Fatal(err)
	}
	if s := sources.Datasources; len(s) != 1 || s[0].Secure.Token != influxToken ||
		s[0].URL != "http://"+h.address+":8086" {
		t.Errorf("the source of data is %+v", s)
	}
	var providers struct {
		Providers []struct {
			Options struct {
				Path string `yaml:"path"`
			} `yaml:"options"`
		} `yaml:"providers"`
	}
	if err := yaml.Unmarshal([]byte(r.on(h, "cat /etc/grafana/provisioning/dashboards/lockstep.yaml")),
		&providers); err != nil {
		t.Fatal(err)
	}
	if len(providers.Providers) != 1 {
		t.Fatalf("dashboards come from %+v", providers)
	}
	files, err := filepath.Glob("../../dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d dashboards are shipped: %v", len(files), err)
	}
	for _, file := range files {
		shipped, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if text := r.on(h, "cat "+filepath.Join(providers.Providers[0].Options.Path,
			filepath.Base(file))); strings.TrimSpace(text) != strings.TrimSpace(string(shipped)) {
			t.Errorf("Grafana finds another dashboard in %s than is shipped", filepath.Base(file))
		}
	}
}
