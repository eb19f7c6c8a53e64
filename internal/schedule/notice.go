package schedule

import (
	"encoding/json"
	"time"
)

// Notice is the JSON that a hook receives. docs/reference/schedules.md documents it for the authors of hooks.
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
