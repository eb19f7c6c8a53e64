package web

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPanicsOfRequestsAreErrors requests pages without a control plane.
func TestPanicsOfRequestsAreErrors(t *testing.T) {
	access, err := NewAccess("127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	pages := New(Config{Access: access, Log: slog.New(slog.NewTextHandler(&log, nil))})
	answer := httptest.NewRecorder()
	pages.ServeHTTP(answer, httptest.NewRequest("GET", "/runs/r1", nil))
	if answer.Code != 500 || !strings.Contains(log.String(), "GET /runs/r1") ||
		!strings.Contains(log.String(), "stack") {
		t.Errorf("status %d, and the log has %q", answer.Code, log.String())
	}
}
