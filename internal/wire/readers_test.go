package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// What an agent's key has the server keep for it ends by itself, whatever it asks for.
func TestConsumersThatNobodyReadsEnd(t *testing.T) {
	g := guardPlane(t)
	nc, _ := g.hostile(t, "a1")
	ask := func(name, more string) jetstream.ConsumerInfo {
		t.Helper()
		body := fmt.Appendf(nil, `{"stream_name":%q,"config":{"name":%q,"durable_name":%q,"filter_subject":"lockstep.task.release.>","ack_policy":"explicit"%s}}`, streamReleases, name, name, more)
		m, err := nc.Request(api+"CONSUMER.CREATE."+streamReleases+"."+name+"."+root+"task.release.>", body, refusedWithin)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			jetstream.ConsumerInfo
			Error *jetstream.APIError `json:"error"`
		}
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			t.Fatal(err)
		}
		if more != "" && (answer.Error == nil || !strings.Contains(answer.Error.Description, "limit")) {
			t.Errorf("%s: %s: want it refused for its limit", name, m.Data)
		}
		if more == "" && answer.Error != nil {
			t.Errorf("%s: %s", name, m.Data)
		}
		return answer.ConsumerInfo
	}
	ask("patient", `,"inactive_threshold":3600000000000`)
	if info := ask("modest", ""); info.Config.InactiveThreshold <= 0 || info.Config.InactiveThreshold > 5*time.Minute {
		t.Errorf("a durable consumer is kept for %v", info.Config.InactiveThreshold)
	}
}

// A stream of an earlier release gets its limits, with a consumer in the way or not.
func TestOldStreamsGetTheLimitsOfConsumers(t *testing.T) {
	t.Parallel()
	s := plane(t, ServerConfig{})
	c := link(t, s)
	stream, err := c.js.Stream(t.Context(), streamReleases)
	if err != nil {
		t.Fatal(err)
	}
	old := stream.CachedInfo().Config
	old.ConsumerLimits = jetstream.StreamConsumerLimits{}
	if _, err = c.js.UpdateStream(t.Context(), old); err == nil {
		_, err = stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Name: "patient", InactiveThreshold: time.Hour})
	}
	if err == nil {
		err = c.Prepare(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if info, err := stream.Info(t.Context()); err != nil || info.Config.ConsumerLimits != readers || info.State.Consumers != 0 {
		t.Errorf("limits are %+v with %d consumers, %v", info.Config.ConsumerLimits, info.State.Consumers, err)
	}
}
