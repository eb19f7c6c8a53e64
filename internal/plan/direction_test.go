package plan

import "testing"

func TestDirections(t *testing.T) {
	for name, want := range map[string]Direction{"publish.rate": HigherIsBetter, "consume.bytes": HigherIsBetter,
		"throughput": HigherIsBetter, "capacity": HigherIsBetter,
		"catchup.rate": HigherIsBetter, "publish.p99": LowerIsBetter, "publish.intended.p50": LowerIsBetter,
		"e2e.p99.highest": LowerIsBetter, "lost": LowerIsBetter,
		"gap.confirm": LowerIsBetter, "backpressure.p99": LowerIsBetter, "binding.first.p50": LowerIsBetter,
		"binding.lost": LowerIsBetter, "broker.memory.p50": LowerIsBetter,
		"broker.cpu.mean": LowerIsBetter, "broker.disk_free.p50": NeitherBetter,
		"broker.publish_rate.mean": NeitherBetter, "agent.cpu": NeitherBetter,
		"send_delay.p99": NeitherBetter, "sent": NeitherBetter, "backlog.max": LowerIsBetter,
		"reconnects": LowerIsBetter, "bulk/publish.p99": LowerIsBetter} {
		v, ok := Metrics(nil).ValueNamed(name)
		if !ok || v.Better != want {
			t.Errorf("%s (known: %v) is better when %q, want %q", name, ok, v.Better, want)
		}
	}
	if _, ok := Metrics(nil).ValueNamed("publish.p98"); ok {
		t.Error("there is no publish.p98")
	}
}
