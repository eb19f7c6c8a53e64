package plan

import (
	"fmt"
	"strings"
	"time"
)

// Limitation is a reason why the numbers of a cell do not describe the broker alone: a limit of the load generator or
// its host.
type Limitation struct {
	Flag   Flag            `json:"flag"`             // ClientBound, SharedHost or HostBusy
	Cause  LimitationCause `json:"cause"`            //
	Host   string          `json:"host,omitempty"`   // of the process
	Agents []string        `json:"agents,omitempty"` // of the process, sorted; empty: not attributed to one process
	Value  float64         `json:"value"`            // measured, in the unit of the cause
	Max    float64         `json:"max"`              // threshold; CauseCPU: number of CPUs
}

// LimitationCause is the measured quantity.
type LimitationCause string

const (
	CauseCPU LimitationCause = "cpu" // CPUs used, of Max
	// fraction of the time in which the busiest thread of a driver's process ran
	CauseThread     LimitationCause = "thread"
	CausePublisher  LimitationCause = "publisher"  // fraction of the time in which the busiest publisher did own work
	CauseSendDelay  LimitationCause = "send_delay" // p99, seconds
	CauseScheduling LimitationCause = "scheduling" // p99 of the time that goroutines waited for a CPU, seconds
	CausePorts      LimitationCause = "ports"      // connections that could not be opened
)

// Process returns the name of the process for messages.
func (l Limitation) Process() string {
	switch {
	case len(l.Agents) == 0:
		return "the agents"
	case len(l.Agents) == 1:
		return "agent " + l.Agents[0]
	}
	return "agents " + strings.Join(l.Agents, ", ")
}

// What describes the measured quantity, for the lowest and the highest value over several cells.
func (l Limitation) What(lowest, highest float64) string {
	between := func(write func(float64) string) string {
		if a, b := write(lowest), write(highest); a != b {
			return a + " to " + b
		}
		return write(highest)
	}
	percent := between(func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) })
	seconds := between(func(x float64) string {
		return time.Duration(x * float64(time.Second)).Round(10 * time.Microsecond).String()
	})
	switch l.Cause {
	case CauseCPU:
		return between(func(x float64) string { return fmt.Sprintf("%.2f", x) }) +
			fmt.Sprintf(" of %g CPUs used", l.Max)
	case CauseThread:
		return "a thread of the driver's process ran " + percent + " of the time"
	case CausePublisher:
		return "a publisher spent " + percent + " of the time in its own work"
	case CauseSendDelay:
		return "messages were sent late: p99 " + seconds
	case CauseScheduling:
		return "goroutines waited for a CPU: p99 " + seconds
	case CausePorts:
		return between(func(x float64) string { return fmt.Sprintf("%.0f", x) }) +
			" connections could not be opened: no local ports were left"
	}
	return ""
}

// Text describes the limitation and its remedy. what describes the measured quantities of the process.
func (l Limitation) Text(what string) string {
	of := l.Process()
	if l.Host != "" {
		of += " on host " + l.Host
	}
	switch l.Flag {
	case SharedHost:
		return "the broker and " + of + " share CPUs: " + what + "; use separate hosts"
	case HostBusy:
		return "other processes used the CPU beside " + of + ": " + what + "; stop them"
	}
	if l.Cause == CausePorts {
		return of + ": " + what + "; widen net.ipv4.ip_local_port_range or spread publishers over more hosts"
	}
	return of + ": " + what + "; spread the load over more publishers, agents or hosts"
}

// String describes the limitation of one cell.
func (l Limitation) String() string { return string(l.Flag) + ": " + l.Text(l.What(l.Value, l.Value)) }
