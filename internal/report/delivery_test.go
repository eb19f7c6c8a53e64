package report

import (
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

func TestDelivered(t *testing.T) {
	one := plan.Delivery{URL: "http://h", Bucket: "b", Points: 10, Written: 10}
	refused := plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Written: 2, Dropped: 7,
		LastError: "unauthorized access", Refused: 401,
		Why: map[string]int64{"queue full": 2, "rejected: 401 Unauthorized": 5}}
	away := plan.Delivery{URL: "http://h", Bucket: "b", Points: 7, Written: 2, Dropped: 5, LastError: "no answer",
		Why: map[string]int64{"not delivered in time": 5}}
	whole := plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Written: 9, Replayed: true, LastError: "no answer"}
	vain := plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Written: 1, Left: 8, Replayed: true,
		LastError: "refused connection",
		Why:       map[string]int64{"not delivered in time": 8}}
	late := plan.Delivery{URL: "http://h", Bucket: "b", Points: 3, Written: 3, Replayed: true, Incomplete: true,
		Cause: "not complete after 30s"}
	slow := plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Written: 8, Left: 1, Replayed: true,
		Cause: "interrupted",
		Why:   map[string]int64{"not delivered in time": 1}}
	cut := plan.Delivery{URL: "http://h", Bucket: "b", Points: 3, Written: 1, Left: 2, Replayed: true, Incomplete: true,
		LastError: "no answer",
		Why:       map[string]int64{"not delivered in time": 2}}
	timed := func(d plan.Delivery, began, ended int64) plan.Delivery {
		d.Began, d.Ended = time.Unix(began, 0), time.Unix(ended, 0)
		return d
	}
	long := plan.Delivery{URL: "http://h", Bucket: "b", Points: 20, Written: 20}
	for _, c := range []struct {
		of   []plan.Delivery
		want string
	}{
		{nil, ""},
		{[]plan.Delivery{one}, "InfluxDB: 10 points written to http://h, bucket b"},
		{[]plan.Delivery{refused, one},
			"InfluxDB: 12 points written to http://h, bucket b; 7 dropped (5 rejected: 401 Unauthorized, 2 queue full); " +
				"last error: unauthorized access; the record is complete; use a token with write access to the bucket, then run: ctl runs replay run-1"},
		{[]plan.Delivery{one, away},
			"InfluxDB: 12 points written to http://h, bucket b; 5 dropped (5 not delivered in time); last error: no answer; " +
				"the record is complete; start InfluxDB, then run: ctl runs replay run-1"},
		{[]plan.Delivery{refused, away, whole}, "InfluxDB: 9 points written to http://h, bucket b (replayed)"},
		{[]plan.Delivery{away, whole, one}, "InfluxDB: 19 points written to http://h, bucket b (replayed)"},
		{[]plan.Delivery{away, vain},
			"InfluxDB: 2 points written to http://h, bucket b; 5 dropped (5 not delivered in time); " +
				"the replay did not write 8 of 9 (8 not delivered in time); last error: refused connection; " +
				"the record is complete; start InfluxDB, then run: ctl runs replay run-1"},
		{[]plan.Delivery{away, vain, whole}, "InfluxDB: 9 points written to http://h, bucket b (replayed)"},
		{[]plan.Delivery{one, late},
			"InfluxDB: 10 points written to http://h, bucket b; the replay stopped before the end of the record: " +
				"not complete after 30s; run: ctl runs replay run-1"},
		{[]plan.Delivery{one, slow},
			"InfluxDB: 10 points written to http://h, bucket b; the replay did not write 1 of 9 " +
				"(1 not delivered in time): interrupted; run: ctl runs replay run-1"},
		{[]plan.Delivery{one, cut},
			"InfluxDB: 10 points written to http://h, bucket b; the replay did not write 2 of 3 " +
				"(2 not delivered in time); the replay stopped before the end of the record; last error: no answer; " +
				"the record is complete; start InfluxDB, then run: ctl runs replay run-1"},
		{[]plan.Delivery{one, late, whole}, "InfluxDB: 9 points written to http://h, bucket b (replayed)"},
		// replays during a live delivery
		{[]plan.Delivery{timed(whole, 3, 4), timed(long, 1, 9)},
			"InfluxDB: 20 points written to http://h, bucket b (replayed)"},
		{[]plan.Delivery{timed(long, 1, 4), timed(whole, 3, 5)},
			"InfluxDB: 20 points written to http://h, bucket b (replayed)"},
		{[]plan.Delivery{timed(away, 1, 2), timed(whole, 3, 4), timed(long, 5, 9)},
			"InfluxDB: 29 points written to http://h, bucket b (replayed)"},
		{[]plan.Delivery{timed(late, 3, 4), timed(long, 1, 9), timed(whole, 10, 11)},
			"InfluxDB: 9 points written to http://h, bucket b (replayed)"},
		{[]plan.Delivery{timed(whole, 3, 4), timed(away, 1, 9)},
			"InfluxDB: 9 points written to http://h, bucket b (replayed); " +
				"5 dropped (5 not delivered in time); last error: no answer; the record is complete; start InfluxDB, then run: ctl runs replay run-1"},
	} {
		if got := Delivered("run-1", c.of); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestNotWritten proves that the next step after an interrupted replay is only the command.
func TestNotWritten(t *testing.T) {
	for _, c := range []struct {
		d    plan.Delivery
		want string
	}{
		{plan.Delivery{URL: "http://h", Bucket: "b", Points: 9, Written: 1, Left: 8, LastError: "refused connection",
			Why: map[string]int64{"not delivered in time": 8}},
			"InfluxDB at http://h, bucket b, did not accept 8 of 9 points (8 not delivered in time); last error: refused connection; " +
				"the record is complete; start InfluxDB, then run: ctl runs replay run-1"},
		{plan.Delivery{URL: "http://h", Bucket: "b", Points: 3, Written: 3, Incomplete: true, Cause: "interrupted"},
			"InfluxDB at http://h, bucket b, accepted 3 points; the replay stopped before the end of the record; run: ctl runs replay run-1"},
	} {
		if got := NotWritten("run-1", c.d); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
