package overhead

import "testing"

// A ratio is accepted if the median reaches 0.95, or if its 95 % interval contains 0.95.
func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		ratios []float64
		want   string
	}{
		{[]float64{0.9, 0.91, 0.95, 0.96, 0.97, 0.98, 0.99, 1}, met},
		{[]float64{0.9, 0.91, 0.92, 0.92, 0.93, 0.93, 0.94, 0.96}, met}, // from 0.90 to 0.96
		{[]float64{0.9, 0.91, 0.92, 0.92, 0.93, 0.93, 0.94, 0.94}, "not met"},
		{[]float64{0.8, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1.2}, "not met"}, // an outlier on either side
	} {
		if got := verdict(test.ratios); got != test.want {
			t.Errorf("%v: %s, want %s", test.ratios, got, test.want)
		}
	}
}

func TestWithInterval(t *testing.T) {
	twelve := []float64{0.5, 0.8, 0.9, 1, 1.04, 1.06, 1.14, 1.2, 1.3, 1.4, 1.6, 2}
	if got, want := withInterval("%.2f", twelve), "1.10 (0.90 to 1.40)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestKnown(t *testing.T) {
	for name, want := range map[string]bool{"Kafka/franz-go/confirm-each-100-B": true, "NATS/confirm-each-100-B": false,
		"Kafka/franz-go/confirm-window-100-B": false} {
		if isKnown(name, work{size: 100}) != want {
			t.Errorf("%s is known: %t, want %t", name, !want, want)
		}
	}
}

func TestProfileCommand(t *testing.T) {
	want := "go test -run '^$' -bench '^BenchmarkKafka$/^franz-go$/^confirm-each-100-B$' -benchtime 1x -cpuprofile cpu.out ./test/overhead && go tool pprof -top -nodecount 5 -tagfocus side=engine cpu.out"
	if got := profileCommand("BenchmarkKafka/franz-go/confirm-each-100-B"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
