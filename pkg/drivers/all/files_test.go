//go:build unix

package all

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"github.com/nats-io/nkeys"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// namesFile matches options that are paths of files, by their names.
var namesFile = regexp.MustCompile(`(?i)(ca|cert|key|file|credentials)$`)

// holdNoPath lists options that namesFile matches but that are no paths.
var holdNoPath = map[string]string{"sqs accessKey": "the name of a key pair"}

// minimal are the options of each driver that has options with paths, with only the endpoint.
var minimal = map[string]string{
	"activemq":   `{"url": "amqps://h:1"}`,
	"artemis":    `{"url": "amqps://h:1"}`,
	"eventstore": `{"url": "esdb://h:1"}`,
	"kafka":      `{"brokers": ["h:1"]}`,
	"mongodb":    `{"url": "mongodb://h:1/"}`,
	"nats":       `{"url": "nats://h:1"}`,
	"rabbitmq":   `{"url": "amqps://h:1"}`,
	"sqs":        `{"endpoint": "https://h:1", "region": "r", "accessKey": "a", "secret": "s"}`,
}

// urlOptions are parameters in drivers' URLs that name a file, with PATH in its place. They are always rejected.
var urlOptions = []struct {
	driver, options, refusal string
}{
	{"eventstore", `{"url": "esdb://h:1?tlsCaFile=PATH"}`, "tls: {ca, cert, key, insecure}"},
	{"rabbitmq", `{"url": "amqps://h:1?cacertfile=PATH"}`, "tls: {ca, cert, key, serverName}"},
	{"rabbitmq", `{"url": "amqps://h:1?certfile=PATH&keyfile=PATH"}`, "tls: {ca, cert, key, serverName}"},
	{"mongodb", `{"url": "mongodb://h:1/?tlsCAFile=PATH"}`, "tls: {ca, cert, key}"},
	{"mongodb", `{"url": "mongodb://h:1/?tls=true;TLSCAFILE=PATH"}`, "tls: {ca, cert, key}"},
	{"mongodb", `{"url": "mongodb://h:1/?tlsCA%46ile=PATH"}`, "tls: {ca, cert, key}"},
	{"mongodb", `{"url": "mongodb://h:1/?tlsCertificateKeyFile=PATH"}`, "tls: {ca, cert, key}"},
	{"mongodb", `{"url": "mongodb://h:1/?tlsCertificateFile=PATH&tlsPrivateKeyFile=PATH"}`, "tls: {ca, cert, key}"},
	{"mongodb", `{"url": "mongodb://h:1/?sslCertificateAuthorityFile=PATH"}`, "tls: {ca, cert, key}"},
	{"mongodb", `{"url": "mongodb://h:1/?sslClientCertificateKeyFile=PATH"}`, "tls: {ca, cert, key}"},
}

// TestDriversReadOnlyAllowedFiles gives every such option paths outside of the allowed folders, and paths that are not
// regular files.
func TestDriversReadOnlyAllowedFiles(t *testing.T) {
	f := newFolders(t)
	skipped := map[string]bool{}
	for _, name := range drivers.Names() {
		d, err := drivers.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		schema := cuecontext.New().CompileString(d.Info().Schema).LookupPath(cue.ParsePath("#Options"))
		var fields [][]string
		for _, field := range pathFields(t, schema, nil) {
			if key := name + " " + strings.Join(field, "."); holdNoPath[key] != "" {
				skipped[key] = true
				continue
			}
			fields = append(fields, field)
		}
		if len(fields) > 0 && minimal[name] == "" {
			t.Errorf("%s has options that name files, %v: add it to this test", name, fields)
			continue
		}
		for _, hostile := range fields {
			t.Run(name+" "+strings.Join(hostile, "."), func(t *testing.T) {
				f.check(t, d, "", func(path string) string {
					var options map[string]any
					if err := json.Unmarshal([]byte(minimal[name]), &options); err != nil {
						t.Fatal(err)
					}
					for _, field := range fields {
						switch {
						case slices.Equal(field, hostile):
							set(options, field, path)
						case len(hostile) > 1 && len(field) > 1: // of the same struct: a key without its certificate is rejected
							set(options, field, f.good)
						}
					}
					text, _ := json.Marshal(options) // consists of text only
					return string(text)
				})
			})
		}
	}
	for _, o := range urlOptions {
		t.Run(o.driver+" "+o.options, func(t *testing.T) {
			d, err := drivers.Lookup(o.driver)
			if err != nil {
				t.Fatal(err)
			}
			f.check(t, d, o.refusal, func(path string) string { return strings.ReplaceAll(o.options, "PATH", path) })
		})
	}
	for key := range holdNoPath {
		if !skipped[key] {
			t.Errorf("holdNoPath has %q, which no driver has", key)
		}
	}
}

// pathFields returns the fields below a struct that are paths.
func pathFields(t *testing.T, v cue.Value, above []string) (all [][]string) {
	t.Helper()
	fields, err := v.Fields(cue.Optional(true), cue.Definitions(false))
	if err != nil {
		t.Fatal(err)
	}
	for fields.Next() {
		path := append(slices.Clone(above), fields.Selector().Unquoted())
		switch {
		case fields.Value().IncompleteKind() == cue.StructKind:
			all = append(all, pathFields(t, fields.Value(), path)...)
		case namesFile.MatchString(path[len(path)-1]):
			all = append(all, path)
		}
	}
	return all
}

// set sets a nested field.
func set(options map[string]any, field []string, value string) {
	for _, name := range field[:len(field)-1] {
		if options[name] == nil {
			options[name] = map[string]any{}
		}
		options = options[name].(map[string]any)
	}
	options[field[len(field)-1]] = value
}

// folders has allowed and forbidden files.
type folders struct {
	access      drivers.Access
	good        string // a certificate and its key, and the seed of an nkey
	outside     string // the same, but forbidden
	absent      string // does not exist, forbidden
	fifo        string // allowed folder, but not a regular file
	fifoOutside string // opening it would block
	large       string // in an allowed folder
}

func newFolders(t *testing.T) folders {
	t.Helper()
	open, shut := t.TempDir(), t.TempDir()
	f := folders{good: filepath.Join(open, "good.pem"), outside: filepath.Join(shut, "good.pem"),
		absent: filepath.Join(shut, "none.pem"),
		fifo:   filepath.Join(open, "fifo"), fifoOutside: filepath.Join(shut, "fifo"),
		large: filepath.Join(open, "large")}
	pair := certificate(t)
	for path, text := range map[string][]byte{f.good: pair, f.outside: pair, f.large: make([]byte, drivers.MaxFile+1)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{f.fifo, f.fifoOutside} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if f.access, err = drivers.LimitedAccess([]string{open, "/dev"}, nil, false); err != nil {
		t.Fatal(err)
	}
	return f
}

// certificate returns a self-signed certificate with its key, in PEM, and the seed of an nkey.
func certificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	// the seed is first, because the library also takes a line of PEM that begins like one
	return slices.Concat(seed, []byte("\n"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
}

// check opens sessions with one path after the other in options. If refusal is set, no path is accepted.
func (f folders) check(t *testing.T, d drivers.Driver, refusal string, options func(path string) string) {
	t.Helper()
	for _, c := range []struct{ path, refusal string }{
		{f.fifoOutside, "--files"}, // first: a driver that opens files itself blocks here, and reads no device
		{f.outside, "--files"}, {f.absent, "--files"}, {f.fifo, "not a regular file"},
		{"/dev/zero", "not a regular file"}, {f.large, "more than"},
	} {
		want := c.refusal
		if refusal != "" {
			want = refusal
		}
		if err, dialled := opened(t, d, f.access, options(c.path)); dialled || err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Fatalf("%s: %v; broker dialled: %t; want %q and no connection", c.path, err, dialled, want)
		}
	}
	if _, dialled := opened(t, d, f.access, options(f.good)); dialled != (refusal == "") {
		t.Errorf("with an allowed file: broker dialled: %t", dialled)
	}
}

// opened declares and opens as controllers and agents do. No server answers at the broker's address.
func opened(t *testing.T, d drivers.Driver, access drivers.Access, options string) (err error, dialled bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var dials atomic.Int64
	filled := schematest.Fill(t, d, options)
	unreachable := func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		cancel()
		return nil, errors.New("no server is there")
	}
	done := make(chan error, 1)
	go func() {
		d.Info().Declare(filled,
			drivers.Use{Mode: drivers.ConfirmWindow, Ack: drivers.AckEach, Queues: 1, Subscriptions: 1, Publishers: 1,
				Consumers: 1})
		s, err := d.Open(ctx, filled, drivers.Env{Dial: unreachable, Dir: t.TempDir(), Access: access,
			Forward: func(ctx context.Context, address string) (string, error) {
				_, err := unreachable(ctx, "tcp", address)
				return "", err
			}})
		if err == nil {
			_ = s.Close()
		}
		done <- err
	}()
	select {
	case err = <-done:
	case <-time.After(2 * time.Minute): // ends a test that hangs
		t.Fatalf("%s is blocked by a file", d.Info().Name)
	}
	return err, dials.Load() > 0
}

// TestTheHostsCloudIdentityIsNotUsed proves that no address of a matrix receives requests or tokens with the host's own
// identity without permission.
func TestTheHostsCloudIdentityIsNotUsed(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_REGION": "r", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	for _, c := range []struct{ driver, options string }{
		{"sqs", `{"endpoint": "http://h:1"}`},
		{"sqs", `{"region": "eu-west-1"}`},
		{"mongodb", `{"url": "mongodb://h:1/?authMechanism=MONGODB-AWS"}`},
		{"mongodb",
			`{"url": "mongodb://h:1/?authMechanism=MONGODB-OIDC&authMechanismProperties=ENVIRONMENT:gcp,TOKEN_RESOURCE:x"}`},
	} {
		d, err := drivers.Lookup(c.driver)
		if err != nil {
			t.Fatal(err)
		}
		if err, dialled := opened(t, d, drivers.Access{}, c.options); dialled || err == nil ||
			!strings.Contains(err.Error(), "--cloud-identity") {
			t.Errorf("%s %s: %v; dialled: %t; want a refusal and no connection", c.driver, c.options, err, dialled)
		}
		if err, dialled := opened(t, d, drivers.FullAccess(), c.options); !dialled {
			t.Errorf("%s %s, allowed: not dialled: %v", c.driver, c.options, err)
		}
	}
	for _, c := range []struct{ driver, options string }{
		{"sqs", `{"endpoint": "http://h:1", "region": "r", "accessKey": "a", "secret": "s"}`},
		{"mongodb", `{"url": "mongodb://key:secret@h:1/?authMechanism=MONGODB-AWS"}`},
	} {
		d, err := drivers.Lookup(c.driver)
		if err != nil {
			t.Fatal(err)
		}
		if err, dialled := opened(t, d, drivers.Access{}, c.options); !dialled {
			t.Errorf("%s %s, with credentials of its own: not dialled: %v", c.driver, c.options, err)
		}
	}
}
