package wire

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"
)

// An agent that writes over a dead leader's lease again and again does not keep the next one from it.
func TestForeignWordsDoNotRenewALease(t *testing.T) {
	s := stand{conn: &Conn{}, who: LeaderInfo{Instance: "me"}, log: slog.New(slog.DiscardHandler)}
	began := time.Now()
	held := LeaderInfo{Epoch: 3, Instance: "dead"}
	s.saw(1, held, began)
	for i := range 10 {
		var foreign LeaderInfo
		_ = json.Unmarshal([]byte(`{"stream":"LOCKSTEP_RECORD","seq":7}`), &foreign)
		s.saw(uint64(i)+2, foreign, began.Add(time.Duration(i)*time.Second))
	}
	if !s.since.Equal(began) || s.revision != 11 {
		t.Errorf("renewed at %v, revision %d: want %v, and 11", s.since, s.revision, began)
	}
	s.saw(12, held, began.Add(time.Minute))
	if !s.since.Equal(began.Add(time.Minute)) {
		t.Error("a renewal of its leader was not seen")
	}
}
