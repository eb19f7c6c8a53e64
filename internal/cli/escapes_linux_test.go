package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.org/lockstep/lockstep/internal/cli"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// hostileText contains a window title, sequences that clear the screen with seven and with eight bits, and a
// right-to-left override.
const hostileText = "\x1b]0;OWNED\a\x1b[2J\u009b2J\u202eDETUPER"

// hostile is a driver whose broker reports hostile texts.
type hostile struct{ drivers.Driver }

func (h hostile) Info() drivers.Info {
	loopback, err := drivers.Lookup("loopback")
	if err != nil {
		panic(err)
	}
	info := loopback.Info()
	return drivers.Info{Name: "hostile", Doc: "A driver of a hostile broker.",
		Schema: "#Options: {\n\t// Whether it opens.\n\topens: *false | bool\n}",
		Declare: func(_ json.RawMessage, use drivers.Use) drivers.Declaration {
			d := info.Declare(json.RawMessage("{}"), use)
			d.Capabilities.InProcess = false
			return d
		}}
}

func (hostile) Open(_ context.Context, options json.RawMessage, _ drivers.Env) (drivers.Session, error) {
	if strings.Contains(string(options), "true") {
		return hostileSession{}, nil
	}
	return nil, errors.New("refused: " + hostileText)
}

type hostileSession struct{ drivers.Session }

func (hostileSession) Close() error { return nil }

func (hostileSession) Leftovers(_ context.Context, prefix string) ([]drivers.Leftover, error) {
	return []drivers.Leftover{{Kind: "queue" + hostileText, Name: prefix + hostileText}}, nil
}

func (hostileSession) Cleanup(context.Context, []drivers.Leftover) error {
	return errors.New(hostileText)
}

// TestControlCharactersOfOutput proves that commands escape foreign texts on a terminal.
func TestControlCharactersOfOutput(t *testing.T) {
	remove, err := drivers.Add(hostile{})
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const rest = "\ncell: {publishers: rate: 10, warmup: \"0s\", measure: \"100ms\"}\n"
	refusing := write("refusing.cue", "package matrix // "+hostileText+"\nname: \"x\"\nbrokers: b: driver: \"hostile\""+
		rest)
	left := write("left.cue", "package matrix\nname: \"x\"\nbrokers: b: {driver: \"hostile\", options: opens: true}"+
		rest)
	broken := write("broken.cue",
		"package matrix\nname: \"x\"\nbrokers: \"b"+`\u001b]0;OWNED\u0007\u009b2J\u202eDETUPER`+"\": driver: \"gone\""+
			rest)

	// A fleet, whose daemons also log to a terminal.
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer all.Wait()
	defer stop()
	server := "nats://" + freeAddress(t)
	daemons := newPTY(t, 100)
	all.Go(func() {
		cli.Controller(ctx, []string{"--open", "--listen", strings.TrimPrefix(server, "nats://")}, nil, daemons.file,
			daemons.file)
	})
	all.Go(func() {
		cli.Agent(ctx, []string{"--server", server, "--name", "a", "--slots", "2"}, nil, daemons.file, daemons.file)
	})
	daemons.await(t, "agent=a.2")

	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"schedule add", []string{"schedule", "add", "--server", server, "--name", "daily", "--cron", "@daily", "--tz",
			"UTC", refusing}, "daily"},
		{"schedule show", []string{"schedule", "show", "--server", server, "daily"},
			`\x1b]0;OWNED\x07\x1b[2J\u009b2J\u202eDETUPER`},
		{"cleanup", []string{"runs", "cleanup", left}, `queue�]0;OWNED`}, /* a table: display.Clean */
		{"cleanup that fails", []string{"runs", "cleanup", "--yes", left}, `broker b: \x1b]0;OWNED`},
		{"an error", []string{"show", "--runs", dir, hostileText}, `OWNED`},
		{"an invalid matrix", []string{"vet", broken}, `\x1b]0;OWNED`},
		{"an unknown command", []string{hostileText}, `OWNED`},
		{"a refusal of an agent", []string{"run", "--server", server, "--runs", filepath.Join(dir, "fleet"), refusing},
			"refused: "},
		{"a local run", []string{"run", "--verbose", "--runs", filepath.Join(dir, "runs"), refusing}, "refused: "},
	} {
		for _, kind := range []string{"xterm", "dumb"} {
			if c.name == "schedule add" && kind == "dumb" {
				continue // it exists already
			}
			t.Run(c.name+" on "+kind, func(t *testing.T) {
				t.Setenv("TERM", kind)
				t.Setenv("NO_COLOR", "1")
				p := newPTY(t, 100)
				cli.Ctl(ctx, c.args, strings.NewReader(""), p.file, p.file)
				harmless(t, p.text(), c.want)
			})
		}
	}
	stop()
	all.Wait()
	harmless(t, daemons.text(), "refused: ")
}

// harmless fails the test if text contains control sequences other than those of the live view, or does not contain
// want.
func harmless(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("it has no %q: %q", want, text)
	}
	for _, sequence := range []string{"\x1b]", "\x1b[2J", "\a", "\u009b", "\u202e"} {
		if strings.Contains(text, sequence) {
			t.Errorf("it has %q: %q", sequence, text)
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	return free.Addr().String()
}
