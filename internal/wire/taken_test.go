package wire

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A port in use is reported once, in the error, with a remedy.
func TestATakenPortIsSaidOnce(t *testing.T) {
	first, err := Embedded(t.Context(), ServerConfig{Listen: "127.0.0.1:0", Open: true})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	var said bytes.Buffer
	_, err = Embedded(t.Context(), ServerConfig{Listen: strings.TrimPrefix(first.URL(), "nats://"), Open: true,
		Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err == nil || !strings.Contains(err.Error(), "in use") ||
		!strings.Contains(err.Error(), "pass another --listen") {
		t.Errorf("the error is %v", err)
	}
	if said.Len() > 0 {
		t.Errorf("it is logged, too: %s", &said)
	}
}
