package plan

// Target is something on an agent's host that its faults may be done to, as the host's own --faults file says. A matrix
// names it; what is run is written in that file alone.
type Target struct {
	Name    string   `json:"name"`
	Process Process  `json:"process"`
	Start   []string `json:"start,omitempty"`   // starts it again after kill and restart; without, there is neither
	Stop    []string `json:"stop,omitempty"`    // stops it in an orderly way; without, SIGTERM does
	Isolate []string `json:"isolate,omitempty"` // cuts it off its network
	Heal    []string `json:"heal,omitempty"`    // undoes that
}

// Kinds lists the faults that can be done to it.
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
