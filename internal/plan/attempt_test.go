package plan

import (
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
