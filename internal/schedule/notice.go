package schedule

import (
	"encoding/json"
	"time"
)

// Notice is what a hook is told, as JSON: docs/schedules.md says it to those who write hooks.
type Notice struct {
	Version  int    `json:"version"` // of this form: 1
	Key      string `json:"key"`     // the same for every call about the same run to the same hook
	Hook     string `json:"hook"`
	Schedule string `json:"schedule"`
	Slot     string `json:"slot"` // RFC 3339, in the schedule's time zone
	Asked    bool   `json:"asked"`
	Missed   int    `json:"missed"`
	Run      string `json:"run"`
	State    State  `json:"state"`
	Why      string `json:"why,omitempty"`

	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Tasks   Tasks     `json:"tasks"`

	Problems          []string        `json:"problems"`
	Previous          string          `json:"previous,omitempty"`
	Directory         string          `json:"directory,omitempty"`
	PreviousDirectory string          `json:"previousDirectory,omitempty"`
	Comparison        json.RawMessage `json:"comparison,omitempty"`
}

// Notice is what a hook is told about an entry; directories are the caller's to add.
func (s *Schedule) Notice(e Entry, hook string) Notice {
	slot := e.At
	if zone, err := readZone(s.Zone); err == nil {
		slot = slot.In(zone)
	}
	n := Notice{Version: 1, Key: s.ID + "/" + e.Run + "/" + hook, Hook: hook, Schedule: s.Name,
		Slot: slot.Format(time.RFC3339), Asked: e.Asked,
		Missed: e.Missed, Run: e.Run, State: e.State, Why: e.Why, Started: e.Started, Ended: e.Ended, Tasks: e.Tasks,
		Problems: e.Problems, Previous: e.Previous, Comparison: e.Compared}
	if n.Problems == nil {
		n.Problems = []string{}
	}
	return n
}
