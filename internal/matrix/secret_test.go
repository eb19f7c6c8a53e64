package matrix

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// secretive is a driver whose schema marks secrets in every way that CUE supports.
type secretive struct{ fake }

// withSecretive registers the driver for one test only, because others list the drivers.
func withSecretive(t *testing.T) {
	t.Helper()
	remove, err := drivers.Add(secretive{fake{"secretive"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
}

func (s secretive) Info() drivers.Info {
	return drivers.Info{Name: s.name, Doc: "A driver with secrets.", Declare: s.declare, Schema: `
#Options: {
	// How it logs in.
	pwd?: string @secret()
	// How else.
	logins?: [...string] @secret()
	// Further texts.
	tls: {
		// Its key.
		privateKey?: string & !="" @secret()
		// Its certificate.
		cert?: string
	}
	// Headers.
	headers: {[string]: string @secret()}
	// Others.
	others: {[string]: string} @secret()
}`}
}

const secretMatrix = `name: "x"
_pwd: "first-secret"
brokers: b: {driver: "secretive", options: {
	pwd: [if _quick {"sixth-secret"}, _pwd][0]
	logins: ["second-secret", "${env:LOGIN}"]
	tls: {privateKey: "third-secret", cert: "public-cert"}
	headers: {"X-Login": "fourth-secret"}
	others: {a: "fifth-secret"}
}}
// of second-secret, first-secret: 3 characters of a comment
_quick: *false | bool @tag(quick,type=bool)
`

func TestSecretsOfOptions(t *testing.T) {
	withSecretive(t)
	m,
		err := Load("x.cue", []byte(secretMatrix),
		Narrow{Set: []string{`brokers.b.options.tls.privateKey="seventh-secret"`}})
	if err != nil {
		t.Fatal(err)
	}
	run, err := m.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := run.Cells[0].Broker.Secret, []string{"pwd", "logins", "tls.privateKey", "headers.X-Login",
		"others"}; !slices.Equal(got, want) {
		t.Errorf("secret options are %q, want %q", got, want)
	}
	want := regexp.MustCompile("[a-z]+-secret").ReplaceAllString(secretMatrix, "***")
	if run.Source.Text != want || run.Source.Omitted {
		t.Errorf("the source is\n%s\nwant\n%s", run.Source.Text, want)
	}
	if want := []string{`brokers.b.options.tls.privateKey="***"`}; !slices.Equal(run.Source.Set, want) {
		t.Errorf("--set is %q, want %q", run.Source.Set, want)
	}
	options := string(run.Redacted().Cells[0].Broker.Options)
	if strings.Contains(options, "-secret") || !strings.Contains(options, "${env:LOGIN}") ||
		!strings.Contains(options, "public-cert") {
		t.Errorf("the recorded options are %s", options)
	}
	literals := []string{"brokers.b.options.headers.X-Login", "brokers.b.options.logins", "brokers.b.options.others.a",
		"brokers.b.options.pwd",
		"brokers.b.options.tls.privateKey"}
	if got := m.Literals(); !slices.Equal(got, literals) {
		t.Errorf("secrets are in %q, want %q", got, literals)
	}
}

// A matrix can mark secrets that the driver's schema does not mark.
func TestAMatrixMarksSecrets(t *testing.T) {
	m, err := Load("x.cue", []byte(`name: "x", brokers: b: {driver: "fake", options: url: "own-secret" @secret()}`),
		Narrow{})
	if err != nil {
		t.Fatal(err)
	}
	if text := m.base.Source.Text; strings.Contains(text, "own-secret") ||
		!slices.Equal(m.brokers["b"].Secret, []string{"url"}) {
		t.Errorf("secret options are %q, the source is %s", m.brokers["b"].Secret, text)
	}
}

// Secrets in the text of a matrix stay hidden also if its short form replaces them.
func TestSecretsThatAreReplacedAreHidden(t *testing.T) {
	withSecretive(t)
	for _, n := range []Narrow{{}, {Quick: true}, {Set: []string{`brokers.b.options.pwd="${env:PWD}"`}},
		{Quick: true, Set: []string{`brokers.b.options.pwd="${env:PWD}"`}}} {
		m, err := Load("x.cue", []byte(secretMatrix), n)
		if err != nil {
			t.Fatal(err)
		}
		if text := m.base.Source.Text; strings.Contains(text, "-secret") {
			t.Errorf("%+v: the source holds a secret:\n%s", n, text)
		}
	}
}

func TestReferencesAreNoLiterals(t *testing.T) {
	withSecretive(t)
	text := `name: "x", brokers: b: {driver: "secretive", options: {pwd: "${env:PWD}", others: a: "${file:/etc/pwd}"}}
brokers: c: {driver: "fake", options: url: "amqp://guest:guest@host/"}, brokers: d: {driver: "fake", options: url: "amqp://bench:${env:PWD}@host/"}
cell: broker: "b"`
	m, err := Load("x.cue", []byte(text), Narrow{})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Literals(); len(got) > 0 {
		t.Errorf("secrets are in %q", got)
	}
	if got, want := m.base.Source.Text, plan.Redact(text); got != want {
		t.Errorf("the source is\n%s\nwant\n%s", got, want)
	}
}

// Errors contain values, but an error in one place must not show the secret of another.
func TestErrorsContainNoSecret(t *testing.T) {
	withSecretive(t)
	got := errorsText(t, strings.Replace(secretMatrix, `cert: "public-cert"`, `cert: 5`, 1)+
		"\ncell: broker: \"first-secret\"", Narrow{})
	if strings.Contains(got, "-secret") || !strings.Contains(got, "cert") || !strings.Contains(got, `unknown broker "***"`) {
		t.Errorf("the errors are %s", got)
	}
}
