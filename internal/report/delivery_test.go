package report

import (
	"testing"

	"lockstep/internal/plan"
)

func TestDelivered(t *testing.T) {
	one := plan.Delivery{URL: "http://h", Bucket: "b", Points: 10, Written: 10}
	two := plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Written: 2, Dropped: 7, LastError: "unauthorized access",
		Why: map[string]int64{"queue full": 2, "refused: 401 Unauthorized": 5}}
	for _, c := range []struct {
		of   []plan.Delivery
		want string
	}{
		{nil, ""},
		{[]plan.Delivery{one}, "InfluxDB: 10 points written to http://h, bucket b"},
		{[]plan.Delivery{two, one}, "InfluxDB: 12 points written to http://h, bucket b; 7 dropped (5 refused: 401 Unauthorized, 2 queue full); " +
			"last error: unauthorized access; the record has all that they say"},
	} {
		if got := Delivered(c.of); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
