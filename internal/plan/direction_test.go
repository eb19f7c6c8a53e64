package plan

import "testing"

func TestDirections(t *testing.T) {
	for name, want := range map[string]Direction{"send.rate": HigherIsBetter, "receive.bytes": HigherIsBetter, "throughput": HigherIsBetter, "capacity": HigherIsBetter,
		"catchup.rate": HigherIsBetter, "send.p99": LowerIsBetter, "send.due.p50": LowerIsBetter, "processing.p99.highest": LowerIsBetter, "lost": LowerIsBetter,
		"gap.confirm": LowerIsBetter, "blocked.p99": LowerIsBetter, "binding.first.p50": LowerIsBetter, "binding.lost": LowerIsBetter, "broker.memory.p50": LowerIsBetter,
		"broker.cpu.mean": LowerIsBetter, "broker.disk_free.p50": NeitherBetter, "broker.publish_rate.mean": NeitherBetter, "agent.cpu": NeitherBetter,
		"lateness.p99": NeitherBetter, "sent": NeitherBetter, "backlog.most": LowerIsBetter, "reconnects": LowerIsBetter, "bulk/send.p99": LowerIsBetter} {
		v, ok := ValueNamed(name)
		if !ok || v.Better != want {
			t.Errorf("%s (known: %v) is better when %q, want %q", name, ok, v.Better, want)
		}
	}
	if _, ok := ValueNamed("send.p98"); ok {
		t.Error("there is no send.p98")
	}
}
