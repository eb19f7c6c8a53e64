package report

import (
	"testing"

	"lockstep/internal/plan"
)

func TestDelivered(t *testing.T) {
	one := plan.Delivery{URL: "http://h", Bucket: "b", Points: 10, Written: 10}
	refused := plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Written: 2, Dropped: 7, LastError: "unauthorized access", Refused: 401,
		Why: map[string]int64{"queue full": 2, "refused: 401 Unauthorized": 5}}
	away := plan.Delivery{URL: "http://h", Bucket: "b", Points: 7, Written: 2, Dropped: 5, LastError: "no answer", Why: map[string]int64{"not delivered in time": 5}}
	whole := plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Written: 9, Replayed: true, LastError: "no answer"}
	vain := plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Written: 1, Left: 8, Replayed: true, LastError: "refused connection",
		Why: map[string]int64{"not delivered in time": 8}}
	for _, c := range []struct {
		of   []plan.Delivery
		want string
	}{
		{nil, ""},
		{[]plan.Delivery{one}, "InfluxDB: 10 points written to http://h, bucket b"},
		{[]plan.Delivery{refused, one}, "InfluxDB: 12 points written to http://h, bucket b; 7 dropped (5 refused: 401 Unauthorized, 2 queue full); " +
			"last error: unauthorized access; the record is complete: use a token that may write to the bucket, then run: ctl sink replay run-1"},
		{[]plan.Delivery{one, away}, "InfluxDB: 12 points written to http://h, bucket b; 5 dropped (5 not delivered in time); last error: no answer; " +
			"the record is complete: start InfluxDB, then run: ctl sink replay run-1"},
		{[]plan.Delivery{refused, away, whole}, "InfluxDB: 9 points written to http://h, bucket b (replayed)"},
		{[]plan.Delivery{away, whole, one}, "InfluxDB: 19 points written to http://h, bucket b (replayed)"},
		{[]plan.Delivery{away, vain}, "InfluxDB: 2 points written to http://h, bucket b; 5 dropped (5 not delivered in time); " +
			"a replay has not written 8 of 9 (8 not delivered in time); last error: refused connection; " +
			"the record is complete: start InfluxDB, then run: ctl sink replay run-1"},
		{[]plan.Delivery{away, vain, whole}, "InfluxDB: 9 points written to http://h, bucket b (replayed)"},
	} {
		if got := Delivered("run-1", c.of); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
