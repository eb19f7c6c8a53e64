package fleet

import (
	"fmt"
	"os"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// TestFleet proves that the playbooks install a fleet on three hosts, that it executes matrices, and that it can be
// upgraded and removed.
func TestFleet(t *testing.T) {
	r := newRig(t)
	empty := map[*host]string{}
	for _, h := range r.hosts {
		empty[h] = r.on(h, traces)
	}
	for _, step := range []struct {
		name string
		do   func(t *testing.T, r *rig)
	}{
		{"check", check},
		{"install", install},
		{"again", again},
		{"run across hosts", across},
		{"latency", latency},
		{"brokers", brokers},
		{"results", shown},
		{"upgrade", upgrade},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.do(t, r) }) {
			t.FailNow()
		}
	}
	t.Run("uninstall", func(t *testing.T) {
		r.play(t, "uninstall.yml", "-e", "lockstep_purge=true")
		for _, h := range r.hosts {
			if left := r.on(h, traces); left != empty[h] {
				t.Errorf("%s had before:\n%sand has after:\n%s", h.name, empty[h], left)
			}
		}
	})
}

// traces lists the files, processes and users of Lockstep on a host.
const traces = `find /etc /usr/bin /usr/local /usr/share /usr/lib/systemd /var/lib /var/log /var/tmp /run /opt /home /tmp -xdev -path '*/jetstream/*' -prune -o -iname '*lockstep*' -print 2>/dev/null | sort
cat /proc/[0-9]*/cmdline | tr '\0' '\n' | grep '[l]ockstep-'
grep '^lockstep' /etc/passwd /etc/group
true`

// check runs site.yml in check mode on an empty host that is to get all roles.
func check(t *testing.T, r *rig) {
	empty := r.on(r.hosts[0], traces)
	if n := r.playOn(t, 1, "site.yml", "--check", "--limit", "h1"); n == 0 {
		t.Error("--check finds nothing to do")
	}
	if made := r.on(r.hosts[0], traces); made != empty {
		t.Errorf("--check has made\n%s", made)
	}
}

func install(t *testing.T, r *rig) {
	r.play(t, "site.yml")
	r.agents(t, first, "h1", "h2", "h3", observer)
	const want = `640 root lockstep-agent /etc/lockstep/agent.env
640 root lockstep-agent /etc/lockstep/creds/agent.nk
lockstep-agent
`
	if out := r.on(r.hosts[1],
		"stat -c '%a %U %G %n' /etc/lockstep/agent.env /etc/lockstep/creds/agent.nk; stat -c %U /proc/$(cat /run/lockstep/agent.child)"); out != want {
		t.Errorf("files and the process belong to\n%swant\n%s", out, want)
	}
}

// again checks that a second run of the playbooks changes nothing.
func again(t *testing.T, r *rig) {
	if n := r.playOn(t, 1, "site.yml", "--limit", "h1"); n != 0 {
		t.Errorf("a second time site.yml changed %d things", n)
	}
	if os.Getenv("LOCKSTEP_LONG") == "" {
		return
	}
	if n := r.playOn(t, 1, "site.yml", "--check", "--limit", "h1"); n != 0 {
		t.Errorf("--check would change %d things of what is as it should be", n)
	}
}

// across runs a matrix whose publishers and consumers are on different hosts with different clocks.
func across(t *testing.T, r *rig) {
	outcomes := r.run(t, r.matrix("hosts", fmt.Sprintf(`
brokers: nats: {driver: "nats", options: {urls: [%q]}}
axes: mode: ["confirm-each", "fire-and-forget"]
repeat: 1
cell: {
	axis: _
	publishers: {mode: axis.mode, nodes: 1, rate: 200, on: host: "h2"}
	consumers: {nodes: 1, on: host: "h3"}
	warmup: "500ms"
	measure: "2s"
}
tables: [{rows: ["mode"], values: ["sent", "e2e.p50", "lost"]}]
`, r.broker(t, r.bridge()))))
	if len(outcomes) != 2 {
		t.Errorf("%d outcomes, want 2", len(outcomes))
	}
	for _, o := range outcomes {
		if names, hosts := parts(o); names != "h2 h3 " || hosts != "h2 h3 " {
			t.Errorf("a task was done by the agents %son the hosts %s, want h2 and h3", names, hosts)
		}
		if o.Ledger.Lost != 0 || o.Ledger.Sent == 0 {
			t.Errorf("ledger %+v", o.Ledger)
		}
		if len(o.Clocks) != 1 {
			t.Errorf("clocks compared: %+v, want one pair", o.Clocks)
		}
	}
}

// latency publishes over a link with a delay of 50 ms in each direction, and over one without.
func latency(t *testing.T, r *rig) {
	const delay = 50 * time.Millisecond
	line := r.delayed(t, r.hosts[1], delay)
	outcomes := r.run(t, r.matrix("latency", fmt.Sprintf(`
brokers: near: {driver: "nats", options: {urls: [%q]}}
brokers: far: {driver: "nats", options: {urls: [%q]}}
axes: broker: ["near", "far"]
repeat: 1
cell: {
	axis: _
	publishers: {mode: "confirm-each", nodes: 1, on: host: "h2"}
	consumers: nodes: 0
	warmup: "500ms"
	measure: "4s"
}
tables: [{rows: ["broker"], values: ["publish.p50", "publish.rate"]}]
`, r.broker(t, r.bridge()), r.broker(t, line.near))))
	if len(outcomes) != 2 {
		t.Fatalf("%d outcomes, want 2", len(outcomes))
	}
	const added = 2 * delay
	near, far := median(outcomes[0]), median(outcomes[1])
	t.Logf("a confirmed send takes %v, and with %v of round trip %v", near, added, far)
	if near >= added {
		t.Errorf("without the delay the median of a confirmed send is %v", near)
	}
	if noise := added + near; far < added || far >= added+noise {
		t.Errorf("with %v of round trip the median of a confirmed send is %v, want at least that, and less than %v",
			added, far, added+noise)
	}
}

// median returns the median of the publish latency.
func median(o plan.Outcome) time.Duration {
	return time.Duration(o.Values["publish.p50"].Number * float64(time.Second))
}

// parts returns the agents of an outcome, in order, and their hosts.
func parts(o plan.Outcome) (names, hosts string) {
	for _, a := range o.Agents {
		names += a.Agent + " "
		hosts += a.Host + " "
	}
	return names, hosts
}
