package matrix

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

func TestHooks(t *testing.T) {
	hooks, err := Hooks("h.json", []byte(`{"hooks": {
		"mail": {"command": ["/usr/bin/mail", "me"], "timeout": "2s", "compare": true},
		"chat.ops": {"webhook": "https://x/y", "headers": {"Authorization": "Bearer ${env:T}"}, "backoff": "3s"}
	}}`))
	want := []plan.Hook{
		{Name: "chat.ops", Webhook: "https://x/y", Headers: map[string]string{"Authorization": "Bearer ${env:T}"},
			Timeout: plan.Duration(30 * time.Second), Retries: 3,
			Backoff: plan.Duration(3 * time.Second)},
		{Name: "mail", Command: []string{"/usr/bin/mail", "me"}, Compare: true, Timeout: plan.Duration(2 * time.Second),
			Backoff: plan.Duration(time.Second)},
	}
	if err != nil || !reflect.DeepEqual(hooks, want) {
		t.Fatalf("%+v, %v", hooks, err)
	}
	if hooks, err = Hooks("h.cue", []byte(`hooks: a: {command: ["x"], retries: 2}`)); err != nil ||
		hooks[0].Retries != 2 {
		t.Errorf("CUE: %+v, %v", hooks, err)
	}
}

// All errors are reported at once, each with its line.
func TestErrorsOfHookFiles(t *testing.T) {
	_, err := Hooks("h.json", []byte(`{"hooks": {
	"a": {"comand": ["x"]},
	"b": {"command": ["x"], "webhook": "https://x"},
	"c": {"webhook": "ftp://x"},
	"d": {"webhook": "https://x", "compare": true},
	"e": {"command": ["x"], "timeout": "soon"},
	"f": {"command": ["x"], "retries": 11},
	"g": {"command": ["x"], "timeout": "2h"},
	"h h": {"command": ["x"]},
	"i": {"command": [""], "headers": {"X": "y"}},
	"j": {"webhook": "https://x", "headers": {"X y": "y", "Y": "a\nb"}}
}}
`))
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{`h.json:2:8: hooks.a.comand: unknown field "comand"; did you mean "command"?`, "h.json:3:", "either a command or a webhook", "h.json:4:", "ftp://x",
		"h.json:5:", "remove it", "h.json:6:", "soon", "h.json:7:", "11", "h.json:8:", "above the maximum, 1h",
		"h.json:9:", "its name is invalid", "h.json:10:", "the program is missing", "hooks.i.headers: only a webhook has headers",
		"h.json:11:", `headers."X y"`, "headers.Y"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	for _, text := range []string{"", "{}", `{"hooks": {}}`, `{"hooks": `, `{"hook": {"a": {"command": ["x"]}}}`} {
		if _, err := Hooks("h.json", []byte(text)); err == nil || !strings.Contains(err.Error(), "h.json") {
			t.Errorf("%q: %v, want a fault with the file's name", text, err)
		}
	}
}
