package report

import (
	"testing"

	"lockstep/internal/plan"
)

func TestDelivered(t *testing.T) {
	one := plan.Delivery{URL: "http://h", Bucket: "b", Points: 10, Written: 10}
	two := plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Written: 2, Dropped: 7, LastError: "unauthorized access",
		Why: map[string]int64{"queue full": 2, "refused: 401 Unauthorized": 5}}
	left := plan.Delivery{URL: "http://h", Bucket: "b", Points: 7, Written: 2, Spooled: 5, LastError: "no answer"}
	vain := plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Left: 9, Replayed: true, LastError: "refused connection", Why: map[string]int64{"not delivered in time": 9}}
	refused := plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Left: 9, Replayed: true, LastError: "HTTP 401: no", Refused: 401, Why: map[string]int64{"refused: 401 Unauthorized": 9}}
	for _, c := range []struct {
		of   []plan.Delivery
		want string
	}{
		{nil, ""},
		{[]plan.Delivery{one}, "InfluxDB: 10 points written to http://h, bucket b"},
		{[]plan.Delivery{two, one}, "InfluxDB: 12 points written to http://h, bucket b; 7 dropped (5 refused: 401 Unauthorized, 2 queue full); " +
			"last error: unauthorized access; the record has all that they say: ctl sink replay writes it again"},
		{[]plan.Delivery{one, left}, "InfluxDB: 12 points written to http://h, bucket b; 5 wait on disk; last error: no answer; " +
			"the record has all that they say: ctl sink replay writes it again"},
		{[]plan.Delivery{left, {URL: "http://h", Bucket: "b", Points: 8, Written: 8}}, "InfluxDB: 10 points written to http://h, bucket b"},
		{[]plan.Delivery{two, left, {URL: "http://h", Bucket: "b", Points: 9, Written: 9, Replayed: true}}, "InfluxDB: 9 points written to http://h, bucket b"},
		{[]plan.Delivery{left, vain}, "InfluxDB: 2 points written to http://h, bucket b; 5 wait on disk; of a replay 9 of 9 were not taken (9 not delivered in time); " +
			"last error: refused connection; the record has all that they say: ctl sink replay writes it again"},
		{[]plan.Delivery{left, refused}, "InfluxDB: 2 points written to http://h, bucket b; 5 wait on disk; of a replay 9 of 9 were not taken (9 refused: 401 Unauthorized); " +
			"last error: HTTP 401: no; the record has all that they say: put the token right, which has to be one that may write to the bucket, and ctl sink replay writes it again"},
	} {
		if got := Delivered(c.of); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
