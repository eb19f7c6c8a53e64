package plan

import (
	"encoding/json"
	"slices"
	"testing"
)

// TestUsesListsAddressesFilesAndSecrets covers the options of cells and groups, the InfluxDB and payloads.
func TestUsesListsAddressesFilesAndSecrets(t *testing.T) {
	broker := func(options string) Broker {
		return Broker{Name: "b", Driver: "kafka", Options: json.RawMessage(options), Via: "proxy:1"}
	}
	cell := Cell{Broker: broker(`{"brokers":["h1:9092","h2"],"n":3,"skipVerify":true,"tls":{"ca":"/etc/shadow"},"password":"${file:/key}","url":"x://u:pw@${env:A}/${env:B}"}`)}
	cell.Workload.Message.Payload.File = "/home/me/payload"
	other := broker(`{"brokers":["h3"]}`) // a plan may have two brokers with the same name
	grouped := Cell{Broker: cell.Broker, Workload: Workload{Groups: []Group{{Name: "g", Broker: &other}}}}
	got := Run{Cells: []Cell{cell, grouped, cell}, Influx: &Influx{URL: "http://i", Token: "${env:T}"}}.Uses()
	want := []string{
		"broker b (kafka): brokers=h1:9092 brokers=h2 n=3 password=${file:/key} skipVerify=true tls.ca=/etc/shadow url=x://u:pw@${env:A}/${env:B} via=proxy:1",
		"broker b (kafka): brokers=h3 via=proxy:1",
		"payload file /home/me/payload",
		"points (InfluxDB): bucket= org= token=${env:T} url=http://i",
		"secret ${env:A}", "secret ${env:B}", "secret ${env:T}", "secret ${file:/key}",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
