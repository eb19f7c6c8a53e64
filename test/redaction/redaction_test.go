// Package redaction proves that no file and no output of a run contains a secret of its matrix.
package redaction

import (
	"archive/zip"
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/cli"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

// canaries is a matrix with secrets in every supported form. All secrets contain "canary".
const canaries = `package matrix

import "strings"

name: "canaries"
let _let = "canary-let"
_pw:         "canary-hidden" // it was canary-hidden before, too
_pass:       'canary-bytes'
_pwd:        #"canary-raw"#
_credential: """
	canary-lines
	"""
_privateKey: "canary-\"quoted\"&<key>"
_accessKey:  "canary-nested"
_list: ["canary-listed"]
_user: "bench"
brokers: {
	good: {driver: "loopback", version: "of canary-hidden"}
	hidden: {driver: "rabbitmq", options: url: "amqp://bench:\(_pw)@127.0.0.1:1/"}
	pass: {driver: "rabbitmq", options: url: "amqp://\(_user):\(_pass)@127.0.0.1:1/"}
	pwd: {driver: "kafka", options: {brokers: ["127.0.0.1:1"], user: "bench", password: _pwd}}
	credential: {driver: "nats", options: {url: "nats://127.0.0.1:1", token: _credential}}
	privateKey: {driver: "nats", options: {url: "nats://127.0.0.1:1", user: "bench", password: _privateKey}}
	accessKey: {driver: "sqs", options: {endpoint: "http://127.0.0.1:1", region: "eu-1", accessKey: "canary-access", secret: strings.ToLower(_accessKey), sessionToken: _list[0]}}
	letting: {driver: "rabbitmq", options: {url: "amqp://bench:\(_let)@127.0.0.1:1/", management: "http://bench:canary%2Fescaped@127.0.0.1:1"}} // canary/escaped
	given: {driver: "rabbitmq", options: url: *"amqp://bench:canary-default@127.0.0.1:1/" | string}
	environment: {driver: "rabbitmq", options: url: "amqp://bench:${env:CANARY}@127.0.0.1:1/"}
	quick: {driver: "kafka", options: {brokers: ["127.0.0.1:1"], user: "bench", password: [if _quick {"canary-of-the-short-form"}, "canary-of-the-long-form"][0]}}
}
influx: {url: "INFLUX", bucket: "b", token: _influx}
_influx: "canary-influx"
_quick: *false | bool @tag(quick,type=bool)
axes: broker: ["good", "hidden", "pass", "pwd", "credential", "privateKey", "accessKey", "letting", "given", "environment"]
cell: {axis: _, publishers: count: 100, warmup: "0s", connect: "200ms", labels: team: "canary-hidden's"}
tables: [{title: "With \(_pw)", rows: ["broker"], values: ["publish.rate"], headings: broker: "As canary-hidden"}]
`

// TestSecretsAreInNoFile searches for the secrets of a matrix in all files and output of a run.
func TestSecretsAreInNoFile(t *testing.T) {
	t.Setenv("CANARY", "canary-environment")
	influx := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	defer influx.Close()
	joined := strings.NewReplacer(`password: _pwd}`, `password: "can" + "ary-joined"}`)
	const asked, omitted = "RERUN_SECRET_1: let _let", "run the matrix of the bundle: The matrix is not recorded"
	for _, c := range []struct {
		name, matrix string
		flags        []string
		source       string // expected in the recorded matrix
		rerun        string // expected in the message of a rerun of the bundle
	}{
		{"as it is", canaries, nil, `hidden: {driver: "rabbitmq", options: url: "amqp://bench:\(_pw)@127.0.0.1:1/"}`,
			asked},
		{"with --set", canaries, []string{"--set", `brokers.given.options.url="amqp://bench:canary-set@127.0.0.1:1/"`},
			`_pw:         "***" // it was *** before, too`, asked},
		{"short", canaries, []string{"--quick"}, `password: [if _quick {"***"}, "***"][0]`, asked},
		{"joined", joined.Replace(canaries), []string{"--set",
			`brokers.given.options.url="amqp://bench:canary-set@127.0.0.1:1/"`},
			"// The matrix is not recorded: the secret in brokers.pwd.options.password does not occur in it as one text.\n", omitted},
		{"too short", strings.Replace(canaries, `password: _pwd}`, `password: "cry"}`, 1), nil,
			"// The matrix is not recorded: the secret in brokers.pwd.options.password is shorter than 4 characters.\n",
			omitted},
		{"a driver's name", strings.Replace(canaries, `password: _pwd}`, `password: "kafka"}`, 1), nil,
			"// The matrix is not recorded: a secret in it is also the name of a field or driver in it.\n", omitted},
		{"a short password of a URL", strings.Replace(canaries, `canary%2Fescaped@127.0.0.1:1"}} // canary/escaped`,
			`cry@127.0.0.1:1"}}`, 1), nil,
			`management: "http://bench:***@127.0.0.1:1"`, asked},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file, runs, bundle := filepath.Join(dir, "matrix.cue"), filepath.Join(dir, "runs"),
				filepath.Join(dir, "run.zip")
			if err := os.WriteFile(file, []byte(strings.Replace(c.matrix, "INFLUX", influx.URL, 1)),
				0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			ctl := func(args ...string) int { return cli.Ctl(t.Context(), args, strings.NewReader(""), &out, &out) }
			if code := ctl(append([]string{"run", "--verbose", "--runs", runs, file},
				c.flags...)...); code != cli.ExitFailedCells {
				t.Fatalf("ctl run ended with %d:\n%s", code, out.String())
			}
			for _, args := range [][]string{{"show", "-o", "html", "--runs", runs, "latest"}, {"show", "--runs", runs, "latest"},
				{"bundle", "create", "--runs", runs, "latest", "-f", bundle}} {
				if code := ctl(args...); code != 0 {
					t.Fatalf("ctl %v ended with %d:\n%s", args, code, out.String())
				}
			}
			noCanary(t, "what ctl printed", out.Bytes())
			if n := canariesBelow(t, os.DirFS(runs)); n < 15 {
				t.Errorf("the run has only %d files", n)
			}
			archive, err := zip.OpenReader(bundle)
			if err != nil {
				t.Fatal(err)
			}
			defer archive.Close()
			if n := canariesBelow(t, archive); n < 10 {
				t.Errorf("the bundle has only %d files", n)
			}
			if code := ctl("bundle", "rerun", "--runs", runs, bundle); code != cli.ExitBadMatrix ||
				!strings.Contains(out.String(), c.rerun) {
				t.Errorf("ctl bundle rerun ended with %d, want an error with %q:\n%s", code, c.rerun, out.String())
			}
			source, err := os.ReadFile(filepath.Join(runs, "latest", "matrix.cue"))
			if err != nil || !strings.Contains(string(source), c.source) {
				t.Errorf("the recorded matrix does not contain %q (%v):\n%s", c.source, err, source)
			}
		})
	}
}

func canariesBelow(t *testing.T, files fs.FS) (n int) {
	t.Helper()
	err := fs.WalkDir(files, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := files.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		text, err := io.ReadAll(f)
		noCanary(t, path, text)
		n++
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return n
}

var canary = regexp.MustCompile(`.{0,60}(canary|can" \+ "ary|Y2FuYXJ5).{0,40}`)

func noCanary(t *testing.T, where string, text []byte) {
	t.Helper()
	for _, found := range canary.FindAll(text, 3) {
		if !bytes.Contains(found, []byte("canaries")) {
			t.Errorf("%s has a secret: %s", where, found)
		}
	}
}
