package artemis

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// variable reads what leads to a real broker. Without one the test is skipped, or fails where the lab promised it.
func variable(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" && os.Getenv("LOCKSTEP_LAB") == "required" {
		t.Fatalf("%s is not set although LOCKSTEP_LAB is \"required\"", name)
	}
	if value == "" {
		t.Skipf("needs a real Artemis: set %s, or run \"go run ./test/lab run artemis artemis-pair -- go test ./pkg/drivers/artemis\"", name)
	}
	return value
}

// single are options for the broker by itself; more is JSON that is laid over them.
func single(t testing.TB, more string) json.RawMessage {
	return merge(t, map[string]any{"url": variable(t, "LOCKSTEP_ARTEMIS_URL")}, more)
}

// pair are options for the primary and its backup.
func pair(t testing.TB, more string) json.RawMessage {
	urls := strings.Split(variable(t, "LOCKSTEP_ARTEMIS_PAIR_URLS"), ",")
	return merge(t, map[string]any{"urls": urls, "ha": "replication"}, more)
}

func merge(t testing.TB, o map[string]any, more string) json.RawMessage {
	t.Helper()
	if err := json.Unmarshal([]byte(more), &o); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// disturb asks the lab to do something to one of its brokers.
func disturb(t testing.TB, what, name string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // drivertest counts goroutines
	response, err := client.Post(variable(t, "LOCKSTEP_LAB_CONTROL")+"/"+what+"?name="+name, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", what, name, text)
	}
}
