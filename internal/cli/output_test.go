package cli

import (
	"strings"
	"testing"
)

// Sentences are wrapped in their column of a terminal. Pipes get them whole, and narrow terminals one line per value.
func TestSentencesAreWrappedInTheirColumn(t *testing.T) {
	const text = "connect to RabbitMQ at 127.0.0.1:1: connection refused; start the broker"
	for columns, want := range map[int]string{
		0: "CHECK   RESULT\n" + "──────  " + strings.Repeat("─", len(text)) + "\n" + "broker  " + text + "\n",
		60: "CHECK   RESULT\n" + "──────  ──────────────────────────────────────────────\n" +
			"broker  connect to RabbitMQ at 127.0.0.1:1: connection\n" + "        refused; start the broker\n",
		30: "CHECK=broker RESULT=connect to\nRabbitMQ at 127.0.0.1:1:\nconnection refused; start the\nbroker\n",
	} {
		var out strings.Builder
		if err := tabulateText(&out, columns, []string{"CHECK", "RESULT"}, [][]string{{"broker", text}}); err != nil || out.String() != want {
			t.Errorf("at %d columns (%v):\n%s\nwant:\n%s", columns, err, out.String(), want)
		}
	}
}
