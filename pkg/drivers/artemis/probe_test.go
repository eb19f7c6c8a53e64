package artemis

import (
	"encoding/json"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// probe returns the metrics of a probe by name.
func (r *rig) probe() map[string]float64 {
	r.t.Helper()
	metrics, err := r.session.Probe(r.context())
	if err != nil {
		r.t.Fatal(err)
	}
	seen := map[string]float64{}
	for _, f := range metrics {
		seen[f.Name] = f.Value
	}
	return seen
}

// Rates are those of this task's queues, and need a second probe.
func TestProbeRates(t *testing.T) {
	r := newRig(t, single(t, `{}`))
	rates := []string{drivers.MetricPublishRate, drivers.MetricDeliverRate, drivers.MetricConnectionRate}
	first := r.probe()
	for _, name := range rates {
		if v, said := first[name]; said {
			t.Errorf("%s is %v in the first answer", name, v)
		}
	}
	if _, said := first[drivers.MetricUnderReplicated]; said {
		t.Error("a broker by itself says that it lacks replicas, or none")
	}
	idle := r.probe()
	if idle[drivers.MetricPublishRate] != 0 || idle[drivers.MetricDeliverRate] != 0 {
		t.Errorf("rates of a task that sends nothing: %v", idle)
	}
	p, _ := r.publisher(drivers.ConfirmEach)
	_, got := r.consumer(10, nil)
	highest := map[string]float64{}
	labtest.Eventually(t, "all rates", func() bool {
		if err := p.Publish(r.context(), drivers.Message{Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		now := r.probe()
		all := true
		for _, name := range rates {
			highest[name] = max(highest[name], now[name])
			all = all && highest[name] > 0
		}
		return all && look(got, func(n *diary) int { return n.received }) > 0
	})
}

// A pair reports whether its backup is in sync.
func TestProbeOfAPair(t *testing.T) {
	r := newRig(t, pair(t, `{}`))
	labtest.Eventually(t, "no queue that lacks its replica", func() bool {
		short, said := r.probe()[drivers.MetricUnderReplicated]
		return said && short == 0
	})
}

// A truncated or incomplete list gives no sums.
func TestSumsOfAListThatIsNotWhole(t *testing.T) {
	list := func(text string) answer {
		body, err := json.Marshal([]string{text})
		if err != nil {
			t.Fatal(err)
		}
		return answer{ok: true, body: string(body)}
	}
	const whole = `{"name": "t.q0", "messageCount": "5", "deliveringCount": "2", "messagesAdded": "9", "messagesAcked": "4"}`
	sum, known := sumQueues(list(`{"count": 1, "data": [`+whole+`]}`), "t.")
	if want := (sums{queues: 1, depth: 5, unacked: 2, added: 9, acked: 4}); !known || sum != want {
		t.Errorf("%+v, %t; want %+v", sum, known, want)
	}
	for name, a := range map[string]answer{
		"cut":          list(`{"count": 2, "data": [` + whole + `]}`),
		"not a number": list(`{"count": 1, "data": [{"name": "t.q0", "messageCount": "many", "deliveringCount": "2", "messagesAdded": "9", "messagesAcked": "4"}]}`),
		"lacks one":    list(`{"count": 1, "data": [{"name": "t.q0", "messageCount": "5", "deliveringCount": "2", "messagesAcked": "4"}]}`),
		"refused":      {body: `["no permission"]`},
	} {
		if sum, known := sumQueues(a, "t."); known {
			t.Errorf("%s: %+v", name, sum)
		}
	}
}
