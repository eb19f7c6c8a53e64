package plan

import (
	"regexp"
	"strings"
	"testing"
)

// TestAttemptsHaveNamesOfTheirOwn proves that attempts have different names at a broker, which begin with the task's
// name. An agent of an earlier attempt must not use or delete the queues of a later one. All of them are found by the
// task's name.
func TestAttemptsHaveNamesOfTheirOwn(t *testing.T) {
	task := grouped()
	seen := map[string]bool{}
	// ids that one process generated in sequence
	for _, attempt := range []string{"", "wXo1tUcf6cwtwc1RXo3JuT", "wXo1tUcf6cwtwc1RXo3JyM"} {
		named := task
		named.Attempt = attempt
		for _, part := range append(named.Parts(), named) {
			if topic := part.Topic(); seen[topic] || !strings.HasPrefix(topic, task.Topic()) ||
				!strings.HasPrefix(topic, named.Topic()) {
				t.Errorf("attempt %q: %s is not new, or does not begin with %s and %s", attempt, topic, task.Topic(),
					named.Topic())
			} else {
				seen[topic] = true
			}
		}
	}
}

// SQS limits names of queues to 80 bytes, and cleanup finds names by their run.
func TestNamesAtABrokerAreBounded(t *testing.T) {
	valid := regexp.MustCompile(`^[A-Za-z0-9-]{1,68}$`)
	for _, run := range []string{
		"20260102-150405-quick-3f9c",
		"20260102-150405-abcdefghijkl-3f9c",                 // the longest id of a run that is not scheduled
		"20260102-150405-abcdefghijklmnopqrstuvwx-3f9c2d81", // of one that is
	} {
		seen := map[string]bool{}
		for _, task := range []string{"3f9c2d81aa07-r1", "3f9c2d81aa07-r200"} {
			for _, attempt := range []string{"", "wXo1tUcf6cwtwc1RXo3JuT", "wXo1tUcf6cwtwc1RXo3JyM"} {
				for _, group := range []string{"", "abcdefghijkl", "abcdefghijkm"} {
					topic := Task{Run: run, ID: task, Attempt: attempt, Group: group}.Topic()
					if !valid.MatchString(topic) || seen[topic] || !strings.HasPrefix(topic, "lockstep-"+run+"-") {
						t.Errorf("%q is not unique, not valid, too long (%d bytes), or not that of the run", topic, len(topic))
					}
					seen[topic] = true
				}
			}
		}
	}
}
