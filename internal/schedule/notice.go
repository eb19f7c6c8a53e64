package schedule

import (
	"encoding/json"
	"time"
)

// Notice is the JSON that a hook receives. docs/schedules.md documents it for the authors of hooks.
type Notice struct {
	Version  int    `json:"version"` // of this format: 1
	Key      string `json:"key"`     // the same for every call of the same hook about the same run
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

// Notice returns the notice of an entry for a hook. The caller adds the directories.
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
