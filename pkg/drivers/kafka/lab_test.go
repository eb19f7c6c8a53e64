package kafka

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
		t.Skipf("needs a real Kafka: set %s, or run \"go run ./test/lab run kafka kafka3 -- go test ./pkg/drivers/kafka\"", name)
	}
	return value
}

// at are options for the brokers in a variable; more is JSON that is laid over them.
func at(t testing.TB, name, more string) json.RawMessage {
	t.Helper()
	o := map[string]any{"brokers": strings.Split(variable(t, name), ","), "sessionTimeout": "6s", "heartbeat": "100ms"}
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
