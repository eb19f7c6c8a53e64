// Package packages proves that the packages for users can be built, installed, upgraded and removed. It installs them
// on a temporary copy of this host.
package packages

import (
	"archive/tar"
	"compress/gzip"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// here skips the test, or fails it if CI is set.
func here(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// built returns the folder with the packages of a version.
func built(t *testing.T, version string) string {
	t.Helper()
	out := t.TempDir()
	c := exec.Command("../../deploy/packages/build.sh", out, version)
	c.Env = append(os.Environ(), "TRIMPATH=")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build packages: %v\n%s", err, text)
	}
	return out
}

func TestPackages(t *testing.T) {
	first := built(t, "1.2.3")
	t.Run("archive", func(t *testing.T) {
		checkArchive(t, filepath.Join(first, "lockstep-1.2.3-linux-amd64.tar.gz"), "1.2.3")
	})
	t.Run("deb", func(t *testing.T) {
		found, err := filepath.Glob(filepath.Join(first, "*.deb"))
		if err != nil || len(found) != 1 {
			t.Fatalf("packages %v: %v", found, err)
		}
		installDeb(t, first, next(t, found[0]))
	})
}

// next returns a folder with the same package under the next version.
func next(t *testing.T, deb string) string {
	t.Helper()
	out, tree := t.TempDir(), filepath.Join(t.TempDir(), "tree")
	for _, c := range [][]string{
		{"dpkg-deb", "--raw-extract", deb, tree},
		{"sed", "-i", "s/^Version: .*/Version: 1.2.4/", filepath.Join(tree, "DEBIAN", "control")},
		{"dpkg-deb", "-Znone", "--build", tree, out},
	} {
		if text, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, text)
		}
	}
	return out
}

func TestBuildRefusesOtherVersions(t *testing.T) {
	text, err := exec.Command("../../deploy/packages/build.sh", t.TempDir(), "v1").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(text), "want one like 1.2.3") {
		t.Errorf("build.sh v1: %v, %s", err, text)
	}
}

// checkArchive checks that the archive has static programs, with the right version, and all other files.
func checkArchive(t *testing.T, file, version string) {
	dir := t.TempDir()
	files := unpack(t, file, dir)
	root := "lockstep-" + version + "-linux-amd64/"
	for _, want := range []string{"README.md", "LICENSE", "docs/howto/secure-a-fleet.md", "matrices/quick.cue",
		"systemd/lockstep-agent.service", "man/ctl-run.1", "man/lockstep-controller.8", "dashboards/live.json",
		"dashboards/provisioning/dashboards/lockstep.yaml", "dashboards/provisioning/datasources/lockstep.yaml"} {
		if !slices.Contains(files, root+want) {
			t.Errorf("%s is not in the archive", want)
		}
	}
	for _, program := range []string{"ctl", "lockstep-controller", "lockstep-agent"} {
		path := filepath.Join(dir, root, program)
		binary, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range binary.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s needs an interpreter: it is not static", program)
			}
		}
		_ = binary.Close()
		says, err := exec.Command(path, "--version").CombinedOutput()
		if want := regexp.MustCompile(`\Q` + version +
			`\E \(commit [0-9a-f]{12}, 20\d\d-\d\d-\d\d(, modified)?\)`); err != nil || !want.Match(says) {
			t.Errorf("%s --version: %v, %q; want %s", program, err, says, want)
		}
	}
}

func unpack(t *testing.T, file, dir string) (names []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(path, data, h.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// onACopy runs a script as root on a copy of this host: an overlay in a separate mount namespace, which is removed when
// the script ends.
const onACopy = `set -eu
mount -t tmpfs none "$COPY"
mkdir "$COPY/upper" "$COPY/work" "$COPY/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$COPY/upper,workdir=$COPY/work" "$COPY/root"
mount --bind /dev "$COPY/root/dev"
mount -t proc proc "$COPY/root/proc"
mkdir -p "$COPY/root/packages/1" "$COPY/root/packages/2"
mount --bind "$FIRST" "$COPY/root/packages/1"
mount --bind "$SECOND" "$COPY/root/packages/2"
exec chroot "$COPY/root" sh -c "$SCRIPT"`

// life installs, upgrades, removes and purges the package. A failure ends it, and the test checks its output.
const life = `set -eu
dpkg -i /packages/1/*.deb
ctl --version; lockstep-controller --version; lockstep-agent --version
for unit in controller agent observer; do
	echo "user: $(id -un lockstep-$unit) $(id -gn lockstep-$unit) $(getent passwd lockstep-$unit | cut -d: -f6,7)"
done
echo "pages: $(dpkg -L lockstep | grep -cE '/man1/ctl(-run)?.1.gz|/man8/lockstep-(agent|controller).8.gz')"
echo "config: $(stat -c '%a %U:%G' /etc/lockstep) creds: $(stat -c '%a %U:%G' /etc/lockstep/creds)"
for unit in controller agent observer; do
	systemd-analyze verify --man=no --recursive-errors=no /lib/systemd/system/lockstep-$unit.service && echo "unit: $unit verified"
done
echo MARK=1 >/etc/lockstep/agent.env
dpkg -i /packages/2/*.deb
echo "upgraded: $(dpkg-query -W lockstep)"
echo "kept: $(cat /etc/lockstep/agent.env)"
ctl vet /usr/share/lockstep/matrices/quick.cue
dpkg -r lockstep
echo "removed: $(ls /usr/bin/lockstep-* 2>/dev/null | wc -l) programs, $(cat /etc/lockstep/agent.env)"
dpkg -P lockstep
echo "purged: $(ls -d /etc/lockstep /var/lib/lockstep /usr/share/lockstep /usr/share/doc/lockstep 2>/dev/null | wc -l) folders, $(getent passwd | grep -c '^lockstep') users"
`

func installDeb(t *testing.T, first, second string) {
	for _, program := range []string{"dpkg", "unshare", "systemd-analyze"} {
		if _, err := exec.LookPath(program); err != nil {
			here(t, "the package cannot be installed here: "+err.Error())
		}
	}
	if os.Geteuid() != 0 {
		here(t, "only root can install a package")
	}
	c := exec.Command("unshare", "--mount", "sh", "-c", onACopy)
	c.Env = append(os.Environ(), "COPY="+t.TempDir(), "FIRST="+first, "SECOND="+second, "SCRIPT="+life)
	text, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("install the package: %v\n%s", err, text)
	}
	for _, want := range []string{
		`1\.2\.3 \(commit`,
		`user: lockstep-controller lockstep-controller /var/lib/lockstep/controller:/usr/sbin/nologin`,
		`user: lockstep-agent lockstep-agent /var/lib/lockstep/agent:`,
		`user: lockstep-observer lockstep-observer /var/lib/lockstep/observer:`,
		`config: 755 root:root creds: 755 root:root`,
		`pages: 4`,
		`unit: controller verified`, `unit: agent verified`, `unit: observer verified`, `upgraded: lockstep\s1\.2\.4`,
		`kept: MARK=1`,
		`quick.cue: 10 cells`, `removed: 0 programs, MARK=1`, `purged: 0 folders, 0 users`,
	} {
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("want %s", want)
		}
	}
	if t.Failed() {
		t.Logf("it said:\n%s", text)
	}
}
