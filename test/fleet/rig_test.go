package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/internal/wire"
)

// The deployed releases; an upgrade installs the second. Both have the same length: see next.
const first, second = "1.0.0-of-test-fleet", "1.0.1-of-test-fleet"

// patience is the time limit of steps that take seconds on an idle machine.
const patience = 10 * time.Minute

// observer is the name of the observer on the first host.
const observer = "h1-observer"

// rig is a site of three hosts with an inventory and the programs to deploy.
type rig struct {
	*site
	programs, inventory, creds string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	lab(t, "LOCKSTEP_ANSIBLE")
	lab(t, "LOCKSTEP_SSHD")
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		message := "hosts are made of Linux namespaces, which needs root"
		if os.Getenv("CI") == "true" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	r := &rig{site: newSite(t, "h1", "h2", "h3")}
	t.Cleanup(r.hangUp)
	r.programs = r.build()
	r.creds = filepath.Join(r.dir, "creds")
	r.must(filepath.Join(r.programs, "ctl"), "fleet", "init", r.creds, "--host", r.hosts[0].address, "--agents",
		"h1,h2,h3,"+observer, "--at", "/etc/lockstep/creds")
	r.writeInventory()
	t.Cleanup(r.tellLogs)
	return r
}

// writeInventory writes the inventory: controller and observer on the first host, agents on all three hosts, each
// labelled with its host.
func (r *rig) writeInventory() {
	r.inventory = filepath.Join(r.dir, "hosts.yml")
	text := "all:\n  vars:\n"
	for _, v := range [][2]string{{"ansible_user", "root"}, {"ansible_python_interpreter", "/usr/bin/python3"},
		{"ansible_ssh_private_key_file", r.key},
		{"lockstep_service", "background"}, {"lockstep_fleet", r.creds}, {"lockstep_server", r.server()}} {
		text += fmt.Sprintf("    %s: %q\n", v[0], v[1])
	}
	text += "    ansible_become: false\n    lockstep_drain_within: 240\n    agent_secrets: {PASSWORD: \"not $HOME\""
	for _, broker := range []string{"NATS", "ARTEMIS", "RABBITMQ"} {
		text += ", " + broker + "_PASSWORD: " + password
	}
	text += "}\n    observer_observes: [\"nats=port:5222\"]\nobservers:\n  hosts:\n    h1:\n"
	text += "controllers:\n  hosts:\n    h1:\nagents:\n  hosts:\n"
	for i, h := range r.hosts {
		// Each host has a different clock. Otherwise all would use this machine's clock.
		text += fmt.Sprintf("    %s:\n      ansible_host: %s\n      agent_labels: {host: %s}\n      agent_environment: {LOCKSTEP_CLOCK: \"+%dms\"}\n", h.name, h.address, h.name, 100*(i+1))
	}
	r.write(r.inventory, text)
}

func (r *rig) server() string { return "tls://" + r.hosts[0].address + ":4222" }

// broker starts a NATS server under test on an address of this machine, and returns its URL.
func (r *rig) broker(t *testing.T, address string) string {
	t.Helper()
	nats, err := server.NewServer(&server.Options{Host: address, Port: -1, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	nats.Start()
	t.Cleanup(func() {
		nats.Shutdown()
		nats.WaitForShutdown()
	})
	if !nats.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS under test does not take connections")
	}
	return nats.ClientURL()
}

// build builds the static programs of the first release, and a NATS server for its role.
func (r *rig) build() string {
	r.t.Helper()
	begun := time.Now()
	dir := filepath.Join(r.dir, first)
	c := exec.Command("go", "build", "-ldflags", "-s -w -X example.org/lockstep/lockstep/internal/cli.release="+first, "-o", dir+"/",
		"../../cmd/...", "github.com/nats-io/nats-server/v2")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		r.t.Fatalf("build the programs: %v\n%s", err, out)
	}
	for _, daemon := range []string{"controller", "agent"} { // the names of make build
		if err := os.Rename(filepath.Join(dir, daemon), filepath.Join(dir, "lockstep-"+daemon)); err != nil {
			r.t.Fatal(err)
		}
	}
	r.t.Logf("built the programs in %.1f s", time.Since(begun).Seconds())
	return dir
}

// next creates the programs of the second release by replacing the version in the files, which is faster than linking.
func (r *rig) next() string {
	r.t.Helper()
	dir := filepath.Join(r.dir, second)
	if err := os.Mkdir(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	for _, program := range []string{"ctl", "lockstep-controller", "lockstep-agent"} {
		code, err := os.ReadFile(filepath.Join(r.programs, program))
		if err != nil {
			r.t.Fatal(err)
		}
		code = bytes.ReplaceAll(code, []byte(first), []byte(second))
		if err := os.WriteFile(filepath.Join(dir, program), code, 0o700); err != nil {
			r.t.Fatal(err)
		}
		if says := r.must(filepath.Join(dir, program), "--version"); !strings.Contains(says, second) {
			r.t.Fatalf("%s --version: %s", program, says)
		}
	}
	return dir
}

var recap = regexp.MustCompile(`(?m)^(h\d) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)`)

// play runs a playbook on all hosts of the site, and returns the number of changes.
func (r *rig) play(t *testing.T, book string, args ...string) (changed int) {
	t.Helper()
	return r.playOn(t, len(r.hosts), book, args...)
}

// playOn runs a playbook that must affect this number of hosts.
func (r *rig) playOn(t *testing.T, hosts int, book string, args ...string) (changed int) {
	t.Helper()
	begun := time.Now()
	settings := []string{"ANSIBLE_SSH_ARGS=" + strings.Join(r.sshArgs(), " "), "ANSIBLE_TIMEOUT=60"}
	out, err := ansible(t, settings, "ansible-playbook",
		append([]string{"-i", r.inventory, "-e", "lockstep_programs=" + r.programs, book}, args...)...)
	found := recap.FindAllStringSubmatch(out, -1)
	if err != nil || len(found) != hosts {
		t.Fatalf("%s %q: %v, %d hosts\n%s", book, args, err, len(found), out)
	}
	for _, f := range found {
		n, _ := strconv.Atoi(f[2])
		changed += n
	}
	t.Logf("%s %s: %d changes in %.1f s", book, strings.Join(args, " "), changed, time.Since(begun).Seconds())
	if 0 < changed && changed < 5 {
		task := ""
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "TASK [") {
				task = strings.Trim(line, "* \n")
			} else if strings.HasPrefix(line, "changed:") {
				t.Logf("%s: %s", task, strings.TrimSpace(line))
			}
		}
	}
	if os.Getenv("LOCKSTEP_FLEET_VERBOSE") != "" {
		t.Log(out)
	}
	return changed
}

// tellLogs adds the ends of the daemons' logs to the log of a failed test.
func (r *rig) tellLogs() {
	if !r.t.Failed() {
		return
	}
	for _, h := range r.hosts {
		r.t.Logf("%s:\n%s", h.name, r.on(h, "tail -n 40 /var/log/lockstep/*.log 2>&1 || true"))
	}
}

// ctl returns a ctl command that runs on this machine, which is not one of the hosts.
func (r *rig) ctl(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(r.dir, first, "ctl"), args...)
	c.Dir = r.dir
	c.Env = append(os.Environ(), "LOCKSTEP_SERVER="+r.server(), "LOCKSTEP_CA="+filepath.Join(r.creds, "ca.crt"),
		"LOCKSTEP_CREDS="+filepath.Join(r.creds, "client.nk"))
	return c
}

// matrix writes a matrix file.
func (r *rig) matrix(name, text string) string {
	file := filepath.Join(r.dir, name+".cue")
	r.write(file, fmt.Sprintf("package matrix\n\nname: %q\n%s", name, text))
	return file
}

// run executes a matrix and returns its outcomes, one per task.
func (r *rig) run(t *testing.T, file string, args ...string) []plan.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	folder := filepath.Join(t.TempDir(), "runs")
	out, err := r.ctl(ctx, append([]string{"run", "--runs", folder, file}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ctl run: %v\n%s", err, out)
	}
	t.Logf("\n%s", out)
	record, err := runs.Open(folder, "latest")
	if err != nil {
		t.Fatal(err)
	}
	outcomes, err := record.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	if tasks := len(record.Plan().Tasks()); len(outcomes) != tasks || tasks == 0 {
		t.Fatalf("%d outcomes of %d tasks", len(outcomes), tasks)
	}
	for _, o := range outcomes {
		if o.Verdict != plan.Valid {
			t.Errorf("task %s is %s: %v", o.Task, o.Verdict, o.Reasons)
		}
	}
	return outcomes
}

// agents waits until the named agents run a release and are free.
func (r *rig) agents(t *testing.T, release string, names ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("agents %v of release %s", names, release), patience, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		out, err := r.ctl(ctx, "fleet", "agents", "-o", "json").Output()
		if err != nil {
			return err
		}
		var list []wire.AgentInfo
		if err := json.Unmarshal(out, &list); err != nil {
			t.Fatalf("ctl fleet agents -o json: %v\n%s", err, out)
		}
		missing := slices.Clone(names)
		for _, a := range list {
			if strings.Contains(a.Version, release) && a.Refused == "" && a.Offset != nil {
				missing = slices.DeleteFunc(missing, func(name string) bool { return name == a.Agent })
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("without %v there are %s", missing, out)
		}
		return nil
	})
}
