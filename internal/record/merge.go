package record

import "time"

// Merge is the merged record of one task.
type Merge struct{}

// Tally is the exact account of a task's messages.
type Tally struct {
	Sent, Uncertain, Confirmed, Rejected, Unconfirmed, Returned                               uint64
	Received, Missing, MissingConfirmed, Duplicated, Reordered, Redelivered, Corrupt, Foreign uint64
}

func NewMerge() *Merge                             { return &Merge{} }
func (m *Merge) Add(s Snapshot) bool               { return false }
func (m *Merge) Windows() []Window                 { return nil }
func (m *Merge) Hist(s Series) *Hist               { return NewHist() }
func (m *Merge) Sum(c Counter, from, to int) int64 { return 0 }
func (m *Merge) Total(c Counter) int64             { return 0 }
func (m *Merge) Hosts() map[string][]HostSample    { return nil }
func (m *Merge) Events() []Event                   { return nil }
func (m *Merge) Clocks() map[string]string         { return nil }
func (m *Merge) Skews() map[string]time.Duration   { return nil }
func (m *Merge) LastSend() int64                   { return 0 }
func (m *Merge) LastConfirm() int64                { return 0 }
func (m *Merge) LastReceipt() int64                { return 0 }
func (m *Merge) Tally(subscriptions int) Tally     { return Tally{} }
func (m *Merge) AllIn(subscriptions int) bool      { return false }
