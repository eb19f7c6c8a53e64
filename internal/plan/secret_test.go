package plan

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

// A password that is not redacted here would be in every record, log and table.
func TestRedact(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"amqp://guest:hunter2@127.0.0.1:5672/", "amqp://guest:***@127.0.0.1:5672/"},
		{"dial nats://u:p@h:4222: refused, then amqps://a:b@c",
			"dial nats://u:***@h:4222: refused, then amqps://a:***@c"},
		{"redis://:secret@h", "redis://:***@h"},
		{"amqp://u:p@ss@h/", "amqp://u:***@h/"},
		{"amqp://u:p/ss@h/", "amqp://u:***@h/"},
		{"amqp://u:it's,hard<>@h/", "amqp://u:***@h/"},
		{`{"url":"amqp://u:a\u0026b@h/","n":1}`, `{"url":"amqp://u:***@h/","n":1}`},
		{`{"url":"amqp:\/\/u:hunter2@h\/"}`, `{"url":"amqp:\/\/u:***@h\/"}`},
		{`"{\"url\":\"amqp://u:hunter2@h/\"}"`, `"{\"url\":\"amqp://u:***@h/\"}"`},
		{"urls amqp://h1:5672/,amqp://u:p@h2", "urls amqp://h1:5672/,amqp://u:***@h2"},
		{`{"url":"http://h:80/x","mail":"a@b"}`, `{"url":"http://h:80/x","mail":"a@b"}`},
		{"http://host:80/x and mail a@b", "http://host:80/x and mail a@b"},
		{"amqp://u@h:5672 has no password", "amqp://u@h:5672 has no password"},
		{"amqp://u:${env:PW}@h", "amqp://u:${env:PW}@h"},
		{`"amqp://u:\(_pw)@h"`, `"amqp://u:\(_pw)@h"`},
		{"nothing", "nothing"},
	} {
		if got := Redact(c.in); got != c.want {
			t.Errorf("Redact(%s)\n got %s\nwant %s", c.in, got, c.want)
		}
		if again := Redact(Redact(c.in)); again != c.want {
			t.Errorf("redacting twice changes %s into %s", c.want, again)
		}
	}
}

// fakeHost has two variables and one file.
type fakeHost struct{}

func (fakeHost) Getenv(name string) (string, error) {
	value, is := map[string]string{"PW": "s3cret&more", "HOST": "h"}[name]
	if !is {
		return "", errors.New("not set")
	}
	return value, nil
}

func (fakeHost) ReadFile(path string) ([]byte, error) {
	if path == "/etc/token" {
		return []byte("tok-en-1\n"), nil
	}
	return nil, os.ErrNotExist
}

func TestResolve(t *testing.T) {
	options := json.RawMessage(`{"url":"amqp://u:${env:PW}@${env:HOST}/","big":12345678901234567890,"list":["${file:/etc/token}",{"x":"y"}],"admin":"http://a:passw0rd@h","keys":{"a":["first-key"]},"password":"pass\"phrase"}`)
	got, scrub, err := Resolve(options, []string{"password", "keys"}, fakeHost{})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"admin":"http://a:passw0rd@h","big":12345678901234567890,"keys":{"a":["first-key"]},"list":["tok-en-1",{"x":"y"}],"password":"pass\"phrase","url":"amqp://u:s3cret&more@h/"}`
	if string(got) != want {
		t.Errorf("resolved options\n got %s\nwant %s", got, want)
	}
	text := scrub.Scrub(`login s3cret&more s3cret%26more s3cret\u0026more with tok-en-1 or passw0rd or pass"phrase or cGFzcyJwaHJhc2U= or first-key at amqp://x:other@y: hello`)
	for _, secret := range []string{"s3cret", "tok-en-1", "passw0rd", "phrase", "other", "cGFz", "first-key"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is still in the scrubbed text %q", secret, text)
		}
	}
	if !strings.Contains(text, "hello") || !strings.Contains(text, "login") {
		t.Errorf("scrubbing took innocent text: %q", text)
	}
}

func TestResolveListsAllMissingReferences(t *testing.T) {
	_, _, err := Resolve(json.RawMessage(`{"a":"${env:NONE}","b":["${file:/no}","${env:NEITHER}","${env:PW}"]}`), nil,
		fakeHost{})
	if err == nil {
		t.Fatal("missing references were taken")
	}
	for _, want := range []string{"${env:NONE}", "${file:/no}", "${env:NEITHER}"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error holds a secret: %v", err)
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cause of the missing file is lost: %v", err)
	}
}

func TestResolveWithoutReferences(t *testing.T) {
	got, scrub, err := Resolve(nil, nil, fakeHost{})
	if err != nil || string(got) != "{}" {
		t.Errorf("no options gave %s, %v", got, err)
	}
	if text := scrub.Scrub("one two"); text != "one two" {
		t.Errorf("a scrubber without secrets changed text to %q", text)
	}
	var none *Scrubber
	if text := none.Scrub("amqp://u:p@h"); text != "amqp://u:***@h" {
		t.Errorf("a nil scrubber gave %q", text)
	}
	if _, _, err := Resolve(json.RawMessage(`{"a"`), nil, fakeHost{}); err == nil {
		t.Error("broken JSON was taken")
	}
}

// guest:guest is common. Removing "guest" from all text would make the text unreadable.
func TestScrubberLeavesUserNames(t *testing.T) {
	_, scrub, err := Resolve(json.RawMessage(`{"url":"amqp://guest:guest@h"}`), nil, fakeHost{})
	if err != nil {
		t.Fatal(err)
	}
	if got := scrub.Scrub("user guest at amqp://guest:guest@h"); got != "user guest at amqp://guest:***@h" {
		t.Errorf("got %q", got)
	}
}

func TestRunRedacted(t *testing.T) {
	own := Broker{Name: "other", Options: json.RawMessage(`{"token":"swordfish"}`), Secret: []string{"token"},
		Via: "ssh://bench:opensesame@host"}
	run := Run{
		ID: "hunter2-1",
		Cells: []Cell{{
			Broker: Broker{Name: "hunter2", Secret: []string{"tls"},
				Options: json.RawMessage(`{"url":"amqp://u:hunter2@h/","tls":{"key":"abc","other":"${env:KEY}"},"note":"not swordfish"}`)},
			Workload:    Workload{Groups: []Group{{Name: "a"}, {Name: "b", Broker: &own}}},
			Coordinates: []Coordinate{{"broker", json.RawMessage(`"hunter2"`)}, {"x", json.RawMessage(`["hunter2"]`)}},
			Notes:       []string{"swordfish is slow"},
		}},
		Excluded: []Excluded{{Reason: "no hunter2"}},
		Influx:   &Influx{URL: "http://h", Token: "influence"},
		Source: Source{Text: `url: "amqp://u:hunter2@h/" // influence`,
			Set: []string{`brokers.r.options.url="amqp://u:hunter2@h/"`}},
	}
	before, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	redacted := run.Redacted()
	text, err := json.Marshal(redacted)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"u:hunter2", "swordfish", "opensesame", "influence", `"abc"`, "no hunter2",
		`["hunter2"]`} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the redacted run holds %s: %s", secret, text)
		}
	}
	if want := `{"note":"not ***","tls":{"key":"***","other":"${env:KEY}"},"url":"amqp://u:***@h/"}`; string(redacted.Cells[0].Broker.Options) != want {
		t.Errorf("options\n got %s\nwant %s", redacted.Cells[0].Broker.Options, want)
	}
	if c := redacted.Cells[0]; redacted.ID != run.ID || c.Broker.Name != "hunter2" ||
		c.Coordinates[0].Text() != "hunter2" {
		t.Errorf("names were changed: %s", text)
	}
	if after, err := json.Marshal(run); err != nil || string(after) != string(before) {
		t.Errorf("redacting changed the run itself, whose agents need the secrets: %s", after)
	}
	if again, err := json.Marshal(redacted.Redacted()); err != nil || string(again) != string(text) {
		t.Errorf("redacting twice changes\n%s into\n%s", text, again)
	}
}

func TestSourceRedacted(t *testing.T) {
	set := []string{`a.b="c"`}
	for _, c := range []struct {
		text, secret, want string
	}{
		{`a: "hunter2" // hunter2`, "hunter2", `a: "***" // ***`},
		{`a: "a\"b\\c"`, `a"b\c`, `a: "***"`},
		{`// p@ss`, "p%40ss", `// ***`},
		{`a: "hun" + "ter2"`, "hunter2",
			"// The matrix is not recorded: the secret in f does not occur in it as one text.\n"},
		{`a: "abc"`, "abc", "// The matrix is not recorded: the secret in f is shorter than 4 characters.\n"},
		{`a: "x"`, `a.b="c"`, `a: "x"`}, // the value is in --set
	} {
		got := Source{Text: c.text, Set: set}.Redacted([]Secret{{Path: "f", Value: c.secret}})
		if omitted := strings.HasPrefix(c.want, "// The matrix"); got.Text != c.want || got.Omitted != omitted ||
			omitted && got.Set[0] != "a.b=***" {
			t.Errorf("%s without %s is %+v, want %s", c.text, c.secret, got, c.want)
		}
	}
	if set[0] != `a.b="c"` {
		t.Errorf("redacting changed --set of the caller: %q", set)
	}
}

func TestEndpoints(t *testing.T) {
	got := Endpoints(json.RawMessage(`{"urls":["amqp://u:hunter2@h1:5672/","nats://h2, nats://h3"],"at":"127.0.0.1:99","six":"[::1]:5","name":"x","n":5,"t":"10:30 h"}`))
	want := []string{"127.0.0.1:99", "[::1]:5", "amqp://u:***@h1:5672/", "nats://h2", "nats://h3"}
	if !slices.Equal(got, want) {
		t.Errorf("endpoints %q, want %q", got, want)
	}
	if got := Endpoints(nil); len(got) != 0 {
		t.Errorf("no options have endpoints %q", got)
	}
}

func TestFingerprint(t *testing.T) {
	base := Subject{Endpoints: []string{"amqp://u:one@h"}, Product: "RabbitMQ", Version: "3.10.8",
		Settings: map[string]string{"a": "1", "b": "2"}}
	same := base
	same.Endpoints, same.Fingerprint = []string{"amqp://u:two@h"}, "before"
	if Fingerprint(base) != Fingerprint(same) {
		t.Error("a password, or the old fingerprint, changes the fingerprint")
	}
	other := base
	other.Version = "3.10.9"
	if Fingerprint(base) == Fingerprint(other) {
		t.Error("two versions have one fingerprint")
	}
	if got, want := Fingerprint(base), "b513205f9828"; got != want {
		t.Errorf("fingerprint %s, was %s in earlier records: histories would part", got, want)
	}
}
