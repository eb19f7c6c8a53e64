package labtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// Own starts an instance once, returns its variables, and stops it when the test ends.
func TestOwn(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		if r.URL.Path == "/up" {
			_,
				_ = io.WriteString(w,
				"LOCKSTEP_PAIR_URL=http://h/?a=b\nLOCKSTEP_LAB_INSTANCE=pair-own1\nLOCKSTEP_LAB_PROCESSES=pair-own1-1,pair-own1-2\n")
		}
	}))
	defer server.Close()
	t.Setenv(controlVariable, server.URL)
	t.Run("a test", func(t *testing.T) {
		own := Own(t, "pair")
		if url := own.Variable("LOCKSTEP_PAIR_URL"); url != "http://h/?a=b" {
			t.Errorf("its address is %q", url)
		}
		Control(t, "kill", own.Process(2))
	})
	want := []string{"POST /up?part=pair", "POST /kill?name=pair-own1-2", "POST /down?part=pair-own1"}
	if !slices.Equal(asked, want) {
		t.Errorf("the lab is asked for %q, want %q", asked, want)
	}
}
