// Package durability proves that a controller acknowledges data only after it is on disk. It traces the system calls of
// real controllers.
package durability

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/test/process"
)

const matrix = `package matrix
name: "durable"
brokers: loop: driver: "loopback"
cell: {
	publishers: {nodes: 1, rate: 50}
	consumers: nodes: 0
	warmup: "0s", measure: "2s"
}
`

// TestDataIsSyncedBeforeItIsAcknowledged runs a matrix on controllers under strace. With --sync always, every
// submission, snapshot and outcome is on disk before its acknowledgement is written to a socket: in the file of the
// stream, or in the Raft logs of a majority of servers. With --sync 1h the same check must fail.
func TestDataIsSyncedBeforeItIsAcknowledged(t *testing.T) {
	programs, err := process.Programs(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		servers int
		sync    string
		synced  bool
	}{
		{"one replica", 1, "always", true},
		{"one replica, synced every hour", 1, "1h", false},
		{"three replicas", 3, "always", true},
		{"three replicas, synced every hour", 3, "1h", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fleet{t: t, programs: programs, dir: t.TempDir(), port: process.Ports(t, 1)[0]}
			calls := f.trace(c.servers, c.sync)
			log, quorum := "/streams/LOCKSTEP", 1
			if c.servers > 1 {
				log, quorum = "/_js_/", c.servers/2+1
			}
			checked, late := f.check(calls, log, quorum)
			t.Logf("%d system calls: acknowledged %v", len(calls), checked)
			for kind, minimum := range map[string]int{"submission": 1, "snapshot": 2, "outcome": 1} {
				switch {
				case checked[kind] < minimum:
					t.Errorf("only %d acknowledgements of %s were found, want at least %d", checked[kind], kind, minimum)
				case c.synced && len(late[kind]) > 0:
					t.Errorf("%s: acknowledged before it was synced: %v", kind, late[kind])
				case !c.synced && len(late[kind]) == 0:
					t.Errorf("%s: all were synced with another policy, so that this check proves nothing", kind)
				}
			}
		})
	}
}

type fleet struct {
	t             *testing.T
	programs, dir string
	port          int // of all servers, which have different addresses
}

// trace runs the matrix on this number of controllers, as a cluster if there are several. It returns their system calls
// in order.
func (f *fleet) trace(servers int, sync string) []call {
	t := f.t
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatalf("%v: install it, or have it installed: go run ./test/lab run strace -- go test ./test/durability", err)
	}
	hosts := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}[:servers]
	creds, program := filepath.Join(f.dir, "creds"), func(name string) string { return filepath.Join(f.programs, name) }
	made := []string{"fleet", "init", creds, "--agents", "a1", "--host", strings.Join(hosts, ",")}
	if servers > 1 {
		made = append(made, "--cluster")
	}
	f.must(exec.Command(program("ctl"), made...))
	route := process.Ports(t, 1)[0]
	var urls []string
	// The script's programs end with the script, and the script ends with strace in any case.
	script := ""
	for i, host := range hosts {
		conf := filepath.Join(f.dir, fmt.Sprintf("nats-%d.conf", i))
		f.write(conf, plain(f.read(filepath.Join(creds, configOf(host, servers))), host, route))
		argv := []string{"setpriv", "--pdeathsig", "KILL", program("controller"), "--listen",
			fmt.Sprintf("%s:%d", host, f.port), "--sync", sync,
			"--dir", filepath.Join(f.dir, fmt.Sprint("controller-", i)), "--nats-config", conf, "--creds",
			filepath.Join(creds, "controller.nk")}
		script += strings.Join(argv, " ") + " &\n"
		urls = append(urls, fmt.Sprintf("nats://%s:%d", host, f.port))
	}
	trace := filepath.Join(f.dir, "trace")
	process.Start(t, process.Command{Dir: f.dir, Bare: true,
		Argv: []string{strace, "-f", "-yy", "-s", "1000000", "-e", "signal=none",
			"-e", "trace=open,openat,read,write,writev,pwrite64,pwritev,fsync,fdatasync", "-o", trace,
			"setpriv", "--pdeathsig", "KILL", "sh", "-c", script + "wait"}})
	as := func(key string) []string {
		return []string{"--server", strings.Join(urls, ","), "--creds", filepath.Join(creds, key)}
	}
	process.Listening(t, f.port)
	process.Start(t, process.Command{Dir: f.dir, Bare: true,
		Argv: append([]string{program("agent"), "--name", "a1", "--dir", filepath.Join(f.dir, "a1")},
			as("agents/a1.nk")...)})
	process.Eventually(t, "an agent there", func() bool {
		out, err := exec.Command(program("ctl"), append([]string{"fleet", "agents"}, as("viewer.nk")...)...).CombinedOutput()
		return err == nil && strings.Contains(string(out), "a1")
	})
	file := filepath.Join(f.dir, "durable.cue")
	f.write(file, matrix)
	f.must(exec.Command(program("ctl"), append([]string{"run", "--runs", filepath.Join(f.dir, "runs"), file},
		as("client.nk")...)...))
	return callsOf(f.read(trace))
}

func configOf(host string, servers int) string {
	if servers == 1 {
		return "nats.conf"
	}
	return "nats-" + strings.ReplaceAll(host, ".", "=2e") + ".conf"
}

var (
	tlsBlock = regexp.MustCompile(`(?m)^ *tls \{[^}]*\}\n`)
	routes   = regexp.MustCompile(`:6222\b`)
)

// plain returns a configuration without TLS, so that the trace shows the data of sockets, and with another port for
// routes.
func plain(conf, host string, route int) string {
	conf = strings.Replace(tlsBlock.ReplaceAllString(conf, ""), "0.0.0.0:6222", host+":6222", 1)
	return routes.ReplaceAllString(conf, fmt.Sprint(":", route))
}

// call is a system call. It began and ended at lines of the trace.
type call struct {
	name, text   string // text: arguments, data and result as printed by strace
	begun, ended int
}

var (
	whole   = regexp.MustCompile(`^(\d+) +(\w+)\((.*)$`)
	resumed = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>(.*)$`)
	// pieces separate the buffers of one writev.
	pieces = regexp.MustCompile(`", iov_len=\d+\}, \{iov_base="`)
)

const unfinished = "<unfinished ...>"

// callsOf parses a trace. Calls that have not ended are left out.
func callsOf(trace string) (calls []call) {
	pending := map[string]call{} // by thread
	n := 0
	for line := range strings.Lines(trace) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if m := resumed.FindStringSubmatch(line); m != nil {
			c := pending[m[1]]
			c.text, c.ended = pieces.ReplaceAllString(c.text+m[3], ""), n
			calls = append(calls, c)
		} else if m := whole.FindStringSubmatch(line); m != nil {
			c := call{name: m[2], text: m[3], begun: n, ended: n}
			if text, cut := strings.CutSuffix(c.text, unfinished); cut {
				c.text = strings.TrimSpace(text)
				pending[m[1]] = c
				continue
			}
			c.text = pieces.ReplaceAllString(c.text, "")
			calls = append(calls, c)
		}
	}
	slices.SortFunc(calls, func(a, b call) int { return a.begun - b.begun })
	return calls
}

var descriptor = regexp.MustCompile(`^\d+<(.*?)>[,)]`)

// file returns the path or the addresses of the call's file descriptor.
func (c call) file() string {
	if m := descriptor.FindStringSubmatch(c.text); m != nil {
		return m[1]
	}
	return ""
}

func (c call) writes() bool {
	return strings.HasPrefix(c.name, "write") || strings.HasPrefix(c.name, "pwrite")
}

var (
	submitted = regexp.MustCompile(`HPUB lockstep\.client\.submit (_INBOX\S+) .*?\{\\"Run\\":\\"([^\\]+)\\"`)
	reported  = regexp.MustCompile(`HPUB lockstep\.agent\.snapshot\.\S+ (_INBOX\S+) .*?(\\"agent\\":\\"[^\\]+\\",\\"seq\\":\d+,)`)
	told      = regexp.MustCompile(`HMSG _INBOX.*?\\"subject\\":\\"(lockstep\.events\.[^\\]+\.outcome\.[^\\]+)\\"`)
)

// check finds the acknowledgements to clients and agents, by kind. late are those whose data was not synced before, in
// at least enough files whose paths contain log. An outcome is acknowledged by its delivery to a client.
func (f *fleet) check(calls []call, log string, enough int) (checked map[string]int, late map[string][]string) {
	checked, late = map[string]int{}, map[string][]string{}
	answered := func(inbox string) int { // line in which the response begins; 0: an error, or no response
		for _, c := range calls {
			if _, answer, found := strings.Cut(c.text, "HMSG "+inbox+" "); found && f.sends(c) {
				if headers, _, _ := strings.Cut(answer, `\r\n\r\n`); !strings.Contains(headers, "Lockstep-Error") {
					return c.begun
				}
			}
		}
		return 0
	}
	judge := func(kind, data string, acknowledged int) {
		if acknowledged == 0 {
			return
		}
		checked[kind]++
		if n := len(synced(calls, log, data, acknowledged)); n < enough {
			late[kind] = append(late[kind], fmt.Sprintf("%s on %d disks, want %d", data, n, enough))
		}
	}
	seen := map[string]bool{}
	for _, c := range calls {
		if c.name == "read" {
			for _, m := range submitted.FindAllStringSubmatch(c.text, -1) {
				judge("submission", "lockstep.queue.submit."+m[2], answered(m[1]))
			}
			for _, m := range reported.FindAllStringSubmatch(c.text, -1) {
				judge("snapshot", m[2], answered(m[1]))
			}
		}
		if !f.sends(c) {
			continue
		}
		for _, m := range told.FindAllStringSubmatch(c.text, -1) {
			if !seen[m[1]] {
				seen[m[1]] = true
				judge("outcome", m[1], c.begun)
			}
		}
	}
	return checked, late
}

// sends reports whether a call writes to a client or an agent.
func (f *fleet) sends(c call) bool {
	return c.writes() && strings.Contains(c.file(), fmt.Sprintf(":%d->", f.port))
}

// synced returns the files whose paths contain log that had the data on disk before the given line.
func synced(calls []call, log, data string, before int) map[string]bool {
	written, on := map[string]int{}, map[string]bool{} // written: the line in which the write ended
	for _, c := range calls {
		if c.begun >= before {
			break
		}
		file := c.file()
		switch {
		case !strings.Contains(file, log):
		case c.writes() && c.ended < before && strings.Contains(c.text, data) && written[file] == 0:
			written[file] = c.ended
		case c.name == "fsync" || c.name == "fdatasync":
			if at := written[file]; at > 0 && c.begun > at && c.ended < before && strings.HasSuffix(c.text, "= 0") {
				on[file] = true
			}
		}
	}
	return on
}

func (f *fleet) read(path string) string {
	f.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

func (f *fleet) write(path, text string) {
	f.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) must(c *exec.Cmd) {
	f.t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		f.t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
}
