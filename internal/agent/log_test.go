package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// Drivers may log their options, so secrets are removed from their logs.
func TestLogsAreScrubbed(t *testing.T) {
	var out bytes.Buffer
	secret := false
	log := scrubbingLog(slog.New(slog.NewTextHandler(&out, nil)), func(s string) string {
		if !secret {
			return s
		}
		return strings.ReplaceAll(s, "hunter2", "***")
	})
	early := log.With("early", 1)
	secret = true // known only after the logger was created
	early.With("with", "hunter2").WithGroup("group").Info("connect as hunter2", "text", "hunter2", "err",
		errors.New("no hunter2"),
		slog.Group("inner", "any", []string{"hunter2"}), "count", 7)
	text := out.String()
	if strings.Contains(text, "hunter2") || strings.Count(text, "***") != 5 {
		t.Errorf("log: got %s, want each of 5 secrets replaced by ***", text)
	}
	for _, want := range []string{"early=1", "group.err=\"no ***\"", "group.inner.any=[***]", "group.count=7"} {
		if !strings.Contains(text, want) {
			t.Errorf("log: want %s in it, got %s", want, text)
		}
	}
}
