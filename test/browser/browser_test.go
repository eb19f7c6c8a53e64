package browser

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDefectivePagesAreReported proves that a page's requests, console messages and exceptions are detected. The tests
// of pages depend on it.
func TestDefectivePagesAreReported(t *testing.T) {
	program := os.Getenv("LOCKSTEP_CHROMIUM")
	if program == "" && os.Getenv("LOCKSTEP_LAB") == "required" {
		t.Fatal(`LOCKSTEP_CHROMIUM is not set although LOCKSTEP_LAB is "required"`)
	}
	if program == "" {
		t.Skip("no browser: go run ./test/lab run chromium -- go test ./test/browser")
	}
	b, err := Start(program)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for name, c := range map[string]struct{ html, complaint, request string }{
		"clean": {`<p>nothing</p><img alt="" src="data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=">`, "",
			""},
		"image": {`<img alt="" src="http://lockstep.example/x.png">`, "lockstep.example",
			"http://lockstep.example/x.png"},
		"exception": {`<script>throw new Error("oh")</script>`, "oh", ""},
		"console":   {`<script>console.error("oh")</script>`, "oh", ""},
		"forbidden": {`<meta http-equiv="Content-Security-Policy" content="default-src 'none'"><script>1</script>`,
			"Content Security Policy", ""},
	} {
		path := filepath.Join(t.TempDir(), "page.html")
		if err := os.WriteFile(path, []byte("<!doctype html><title>t</title>"+c.html), 0o600); err != nil {
			t.Fatal(err)
		}
		page, err := b.Open(ctx, "file://"+path)
		if err != nil {
			t.Fatal(err)
		}
		complaints, requests := strings.Join(page.Complaints(), "\n"), page.Requests()[1:]
		if c.complaint == "" && complaints != "" || !strings.Contains(complaints, c.complaint) {
			t.Errorf("%s: complaints %q, want %q", name, complaints, c.complaint)
		}
		if strings.Join(requests, " ") != c.request {
			t.Errorf("%s: requests %q, want %q", name, requests, c.request)
		}
	}
}
