package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// site is a network bridge on this machine with hosts, each a set of namespaces with an SSH server.
type site struct {
	t      *testing.T
	dir    string
	id     string // part of the names of all objects: "lsf" and this process's number
	prefix string // of the addresses: "10.201.7."
	key    string // that the hosts accept
	hosts  []*host
}

type host struct {
	name, address, space string
	log                  string
	process              *exec.Cmd
}

// bridge returns the address of this machine on the bridge.
func (s *site) bridge() string { return s.prefix + "1" }

// newSite creates the hosts. They are removed at the end of the test in any case.
func newSite(t *testing.T, names ...string) *site {
	t.Helper()
	pid := os.Getpid()
	s := &site{t: t, dir: t.TempDir(), id: fmt.Sprintf("lsf%x", pid),
		prefix: fmt.Sprintf("10.%d.%d.", 200+pid/250%50, pid%250)}
	s.cleanup()
	s.key = filepath.Join(s.dir, "key")
	s.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.key)
	s.ip("link", "add", s.id, "mtu", "9000", "type", "bridge")
	t.Cleanup(func() { s.ip("link", "del", s.id) })
	s.ip("addr", "add", s.bridge()+"/24", "dev", s.id)
	s.ip("link", "set", s.id, "up")
	for i, name := range names {
		s.add(name, i+1)
	}
	for _, h := range s.hosts {
		s.await(h)
	}
	return s
}

var made = regexp.MustCompile(`^lsf([0-9a-f]+)(-\d)?$`)

// cleanup removes objects that killed tests left behind. The processes of their hosts have already ended.
func (s *site) cleanup() {
	s.t.Helper()
	gone := func(name string) bool {
		found := made.FindStringSubmatch(name)
		if found == nil {
			return false
		}
		pid, err := strconv.ParseInt(found[1], 16, 32)
		return err == nil && (int(pid) == os.Getpid() || errors.Is(syscall.Kill(int(pid), 0), syscall.ESRCH))
	}
	spaces, err := os.ReadDir("/run/netns")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	for _, e := range spaces {
		if gone(e.Name()) {
			_ = exec.Command("ip", "netns", "del", e.Name()).Run() // fails if another test has removed it
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range links {
		if gone(l.Name) {
			// Errors are ignored: the kernel removes the devices of a namespace at some time after the namespace.
			_ = exec.Command("ip", "link", "del", l.Name).Run()
		}
	}
}

func (s *site) add(name string, n int) {
	s.t.Helper()
	space := fmt.Sprintf("%s-%d", s.id, n)
	h := &host{name: name, address: fmt.Sprintf("%s%d", s.prefix, 10+n), space: space}
	near, far := space, fmt.Sprintf("%sf%d", s.id, n)
	s.ip("netns", "add", space)
	s.t.Cleanup(func() { s.ip("netns", "del", space) }) // also removes its devices
	s.ip("link", "add", near, "mtu", "9000", "type", "veth", "peer", "name", far, "mtu", "9000", "netns", space)
	s.ip("link", "set", near, "master", s.id, "up")
	s.ip("-n", space, "addr", "add", h.address+"/24", "dev", far)
	s.ip("-n", space, "link", "set", far, "up")
	s.ip("-n", space, "link", "set", "lo", "up")
	s.start(h)
	s.hosts = append(s.hosts, h)
}

// start starts the first process of the host, an SSH server.
func (s *site) start(h *host) {
	s.t.Helper()
	settings, root := filepath.Join(s.dir, h.name, "ssh"), filepath.Join(s.dir, h.name, "root")
	h.log = filepath.Join(s.dir, h.name, "log")
	for _, dir := range []string{settings, root} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			s.t.Fatal(err)
		}
	}
	s.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(settings, "host_key"))
	s.must("cp", s.key+".pub", filepath.Join(settings, "authorized_keys"))
	s.write(filepath.Join(settings, "sshd_config"), fmt.Sprintf(`ListenAddress %s
HostKey /run/test/host_key
AuthorizedKeysFile /run/test/authorized_keys
PidFile none
StrictModes no
UsePAM no
UseDNS no
LoginGraceTime 10m
MaxStartups 100
MaxSessions 100
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
`, h.address))
	script, err := filepath.Abs("host.sh")
	if err != nil {
		s.t.Fatal(err)
	}
	log, err := os.Create(h.log)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	// All processes of a host end with its first process. That one ends with the test, also if the test is killed.
	h.process = exec.Command("ip", "netns", "exec", h.space, "unshare", "--uts", "--mount", "--pid", "--fork",
		"--kill-child",
		"sh", script, h.name, root, settings, os.Getenv("LOCKSTEP_SSHD"))
	h.process.Stdout, h.process.Stderr = log, log
	h.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := h.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = h.process.Process.Kill()
		_ = h.process.Wait()
	})
}

// await waits until a host answers.
func (s *site) await(h *host) {
	s.t.Helper()
	eventually(s.t, "host "+h.name+" answers", time.Minute, func() error {
		c, err := net.DialTimeout("tcp", h.address+":22", time.Second)
		if err != nil {
			text, _ := os.ReadFile(h.log)
			return fmt.Errorf("%w: %s", err, text)
		}
		return c.Close()
	})
}

// eventually waits until not returns nil. If it never does, the test fails with its last error.
func eventually(t *testing.T, what string, within time.Duration, not func() error) {
	t.Helper()
	late := time.Now().Add(within)
	for {
		err := not()
		if err == nil {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("not so after %v: %s: %v", within, what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// sshArgs returns SSH's options on this machine. All commands share one connection per host until the end of the test.
func (s *site) sshArgs() []string {
	return []string{"-o", "ControlMaster=auto", "-o", "ControlPersist=120", "-o", "ControlPath=" + s.dir + "/ssh-%h",
		"-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=60"}
}

// hangUp closes the shared connections.
func (s *site) hangUp() {
	for _, h := range s.hosts {
		_ = exec.Command("ssh", append(s.sshArgs(), "-O", "exit", "root@"+h.address)...).Run() // fails without one
	}
}

// on runs a shell command on a host by SSH.
func (s *site) on(h *host, command string) string {
	s.t.Helper()
	return s.must("ssh", append(s.sshArgs(), "-i", s.key, "root@"+h.address, command)...)
}

func (s *site) ip(args ...string) {
	s.t.Helper()
	s.must("ip", args...)
}

// must runs a program on this machine. The test fails if the program fails.
func (s *site) must(name string, args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.WaitDelay = time.Second // SSH's shared connection keeps the output open
	out, err := c.Output()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			out = append(out, exit.Stderr...)
		}
		s.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *site) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}
