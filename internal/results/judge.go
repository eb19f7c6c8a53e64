package results

import (
	"time"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// Version is the version of the outcomes that Judge writes.
const Version = 1

// Facts are what the agents' records do not tell of a task.
type Facts struct {
	Agents    []plan.AgentPart // every agent of the task, by index
	Subject   plan.Subject
	Events    []plan.Event // the controller's own; the agents' come from their records
	DrainCut  bool         // the drain was ended by its limit, not by silence
	Failure   string       // why the task failed; empty if it did not
	Cancelled bool
	Started   time.Time
	Ended     time.Time
}

// Judge tells what came of a task: values, account, flags, verdict. It is pure: the same record and facts give the same outcome.
func Judge(t plan.Task, m *record.Merge, f Facts) plan.Outcome { panic("not built yet") }
