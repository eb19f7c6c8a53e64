package report

import (
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// A value of a task with several attempts has a note with the reasons, with and without a number.
func TestAttemptsAreNoted(t *testing.T) {
	run, all := study()
	one := all[:1]
	one[0].FailedAttempts = []plan.FailedAttempt{{Name: "x", Kind: plan.FailedAgentLost},
		{Name: "y", Kind: plan.FailedConnect}}
	run.Repeat = 1
	for _, verdict := range []plan.Verdict{plan.Valid, plan.Unknown} {
		one[0].Verdict, one[0].Reasons = verdict, []string{"the reason"}
		if notes := notesShown(run, one); !strings.Contains(notes, "3 attempts: agent-lost, connect") {
			t.Errorf("%s: the notes are %q", verdict, notes)
		}
	}
	one[0].Repetition, run.Repeat = 2, 3
	if notes := notesShown(run, one); !strings.Contains(notes, "repetition 2: 3 attempts: agent-lost, connect") {
		t.Errorf("of several repetitions the notes are %q", notes)
	}
}

// notesShown returns the footnotes that fields of tables refer to.
func notesShown(run plan.Run, outcomes []plan.Outcome) string {
	var all []string
	for _, table := range Build(run, outcomes) {
		for _, row := range table.Rows {
			for _, f := range row {
				for _, n := range f.Notes {
					all = append(all, table.Notes[n-1])
				}
			}
		}
	}
	return strings.Join(all, "\n")
}
