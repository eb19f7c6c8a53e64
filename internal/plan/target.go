package plan

// Target is something on an agent's host into which faults can be injected. It is defined in the agent's --faults file,
// including the commands. Matrices only refer to it by name.
type Target struct {
	Name    string   `json:"name"`
	Process Process  `json:"process"`
	Start   []string `json:"start,omitempty"`   // starts it after kill and restart; empty: neither is possible
	Stop    []string `json:"stop,omitempty"`    // stops it in an orderly way; empty: SIGTERM
	Isolate []string `json:"isolate,omitempty"` // cuts it off from its network
	Heal    []string `json:"heal,omitempty"`    // undoes Isolate
}

// Kinds returns the kinds of faults that the target supports.
func (t Target) Kinds() []string {
	var kinds []string
	if t.Process != (Process{}) {
		kinds = append(kinds, FaultPause)
		if len(t.Start) > 0 {
			kinds = append(kinds, FaultKill, FaultRestart)
		}
	}
	if len(t.Isolate) > 0 && len(t.Heal) > 0 {
		kinds = append(kinds, FaultIsolate)
	}
	return kinds
}
