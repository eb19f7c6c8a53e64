package wire

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAServerThatIsStuckIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		s := &Server{cfg: ServerConfig{Log: slog.New(slog.NewTextHandler(&said, nil))}}
		free := make(chan struct{})
		begin := time.Now()
		s.shut(func() { <-free }, stopTimeout)
		if d := time.Since(begin); d != stopTimeout || !strings.Contains(said.String(), "does not end") {
			t.Errorf("left after %v, saying %q: want %v and a line", d, said.String(), stopTimeout)
		}
		close(free)
	})
}
