package judge

import (
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
)

// distinct returns the seconds without the deliveries of messages that another consumer had received before. They would
// hide a backlog if as many messages are missing. Only their total is known, so that each second loses the same share.
// Nothing is subtracted unless more messages are missing than a backlog may grow by. If none are missing, nothing is
// hidden, and a burst of redeliveries must not appear as a backlog before it.
func distinct(in *input, l plan.Ledger, every everySecond) everySecond {
	unique := in.total(record.Unique)
	share := 1 - float64(l.Received)/max(1, unique)
	if share <= 0 || float64(l.Lost+l.Undrained) <= Tolerance*float64(l.Sent)*float64(in.subscriptions) {
		return every
	}
	of := make([]second, len(every.of))
	for i, s := range every.of {
		s.unique *= 1 - share
		of[i] = s
	}
	return everySecond{every.first, of}
}
