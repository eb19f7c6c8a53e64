package activemq

import (
	"encoding/json"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

var lab = labtest.Broker{Name: "ActiveMQ", Parts: "activemq activemq-pair", Tests: "pkg/drivers/activemq"}

// single returns options for the single broker. more is JSON that is merged into them.
func single(t testing.TB, more string) json.RawMessage {
	return labtest.Options(t, map[string]any{"url": lab.Variable(t, "LOCKSTEP_ACTIVEMQ_URL")}, more)
}

// pair returns options for two brokers with one store.
func pair(t testing.TB, more string) json.RawMessage {
	urls := strings.Split(lab.Variable(t, "LOCKSTEP_ACTIVEMQ_PAIR_URLS"), ",")
	return labtest.Options(t, map[string]any{"urls": urls, "ha": "shared-store"}, more)
}
