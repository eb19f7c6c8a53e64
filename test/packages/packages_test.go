// Package packages proves that the packages for users can be built, installed, upgraded and removed. It installs them
// on a temporary copy of this host.
package packages

import (
	"archive/tar"
	"compress/gzip"
	"crypto/x509"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
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

// built returns the folder with the packages of all platforms, by make dist.
func built(t *testing.T, version string) string {
	t.Helper()
	out := t.TempDir()
	c := exec.Command("make", "-C", "../..", "dist", "DIST="+out, "VERSION="+version)
	c.Env = append(os.Environ(), "TRIMPATH=")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build packages: %v\n%s", err, text)
	}
	return out
}

func TestPackages(t *testing.T) {
	first := built(t, "1.2.3")
	t.Run("archive", func(t *testing.T) {
		checkArchive(t, filepath.Join(first, "lockstep-1.2.3-linux-"+runtime.GOARCH+".tar.gz"), "1.2.3")
	})
	t.Run("platforms", func(t *testing.T) { checkPlatforms(t, first, "1.2.3") })
	t.Run("image", func(t *testing.T) { runImage(t, filepath.Join(first, "lockstep-1.2.3-image")) })
	t.Run("checksums", func(t *testing.T) {
		c := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
		c.Dir = first
		if text, err := c.CombinedOutput(); err != nil || !strings.Contains(string(text), ".rpm: OK") {
			t.Errorf("%v\n%s", err, text)
		}
	})
	t.Run("bill of materials", func(t *testing.T) { checkMaterials(t, filepath.Join(first, "lockstep-1.2.3-sbom.json")) })
	t.Run("deb", func(t *testing.T) {
		found, err := filepath.Glob(filepath.Join(first, "*_"+runtime.GOARCH+".deb"))
		if err != nil || len(found) != 1 {
			t.Fatalf("packages %v: %v", found, err)
		}
		checkLinks(t, found[0])
		installDeb(t, found[0], next(t, found[0]))
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
	root := "lockstep-" + version + "-linux-" + runtime.GOARCH + "/"
	for _, want := range []string{"README.md", "LICENSE", "docs/howto/secure-a-fleet.md", "matrices/quick.cue",
		"systemd/lockstep-agent.service", "man/ctl-run.1", "man/lockstep-controller.8", "dashboards/live.json",
		"third-party/go-LICENSE", "SECURITY.md",
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
	text, err := exec.Command(filepath.Join(dir, root, "ctl"), "run", "--runs", t.TempDir(),
		filepath.Join(dir, root, "matrices", "quick.cue")).CombinedOutput()
	if err != nil || !strings.Contains(string(text), quickRuns) {
		t.Errorf("run quick.cue of the archive: %v\n%s", err, text)
	}
}

// checkPlatforms checks that each platform has an archive with programs of its format and architecture.
func checkPlatforms(t *testing.T, out, version string) {
	for platform, programs := range map[string][]string{"linux-amd64": {"ctl", "lockstep-controller", "lockstep-agent"},
		"linux-arm64": {"ctl", "lockstep-controller", "lockstep-agent"}, "darwin-amd64": {"ctl"}, "darwin-arm64": {"ctl"},
		"windows-amd64": {"ctl.exe"}} {
		dir := t.TempDir()
		name := "lockstep-" + version + "-" + platform
		unpack(t, filepath.Join(out, name+".tar.gz"), dir)
		for _, program := range programs {
			file, found := filepath.Join(dir, name, program), ""
			if f, err := elf.Open(file); err == nil {
				found = map[elf.Machine]string{elf.EM_X86_64: "linux-amd64", elf.EM_AARCH64: "linux-arm64"}[f.Machine]
				_ = f.Close()
			} else if f, err := macho.Open(file); err == nil {
				found = map[macho.Cpu]string{macho.CpuAmd64: "darwin-amd64", macho.CpuArm64: "darwin-arm64"}[f.Cpu]
				_ = f.Close()
			} else if f, err := pe.Open(file); err == nil {
				found = map[uint16]string{pe.IMAGE_FILE_MACHINE_AMD64: "windows-amd64"}[f.Machine]
				_ = f.Close()
			}
			if found != platform {
				t.Errorf("%s of %s is a program of %q", program, platform, found)
			}
		}
	}
	for _, pattern := range []string{"*_amd64.deb", "*_arm64.deb", "*.x86_64.rpm", "*.aarch64.rpm"} {
		if found, err := filepath.Glob(filepath.Join(out, pattern)); err != nil || len(found) != 1 {
			t.Errorf("packages %s: %v, %v", pattern, found, err)
		}
	}
}

// checkLinks checks that the links between the pages of a package lead to files of the package.
func checkLinks(t *testing.T, deb string) {
	dir := t.TempDir()
	if text, err := exec.Command("dpkg-deb", "--extract", deb, dir).CombinedOutput(); err != nil {
		here(t, "the package cannot be unpacked here: "+err.Error()+" "+string(text))
	}
	link, checked := regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)\s]*)?\)`), 0
	err := filepath.WalkDir(filepath.Join(dir, "usr/share/doc/lockstep"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == "third-party" {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range link.FindAllSubmatch(text, -1) {
			checked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), string(m[1]))); err != nil {
				t.Errorf("%s links to %s, which the package does not have", strings.TrimPrefix(path, dir), m[1])
			}
		}
		return err
	})
	if err != nil || checked < 150 {
		t.Errorf("%d links were checked, %v", checked, err)
	}
}

// quickRuns is in the output of "ctl run quick.cue", whose 10 tasks all are valid.
const quickRuns = "10 tasks: 10 valid, 0 invalid, 0 failed"

// runImage runs quick.cue in the files of the image, as its user and with its environment.
func runImage(t *testing.T, layout string) {
	if os.Geteuid() != 0 {
		here(t, "only root can run an image")
	}
	type blob struct {
		Digest   string
		Platform struct{ Architecture string }
	}
	read := func(name string, v any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(layout, name))
		if err == nil {
			err = json.Unmarshal(text, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	path := func(b blob) string { return filepath.Join("blobs", strings.ReplaceAll(b.Digest, ":", "/")) }
	var index struct{ Manifests []blob }
	read("index.json", &index)
	read(path(index.Manifests[0]), &index) // the images of all platforms
	own := slices.IndexFunc(index.Manifests, func(m blob) bool { return m.Platform.Architecture == runtime.GOARCH })
	if own < 0 {
		t.Fatalf("no image for this host: %v", index.Manifests)
	}
	var manifest struct {
		Config blob
		Layers []blob
	}
	read(path(index.Manifests[own]), &manifest)
	var config struct {
		Config struct {
			User       string
			Env        []string
			Entrypoint []string
		}
	}
	read(path(manifest.Config), &config)
	root := t.TempDir()
	for _, layer := range manifest.Layers {
		unpackAll(t, filepath.Join(layout, path(layer)), root)
	}
	trusted, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if roots := x509.NewCertPool(); err != nil || !roots.AppendCertsFromPEM(trusted) {
		t.Errorf("the image has no root certificates: %v", err)
	}
	run := slices.Concat([]string{"--userspec=" + config.Config.User, root}, config.Config.Entrypoint,
		[]string{"run", "--runs", "/tmp/runs", "/usr/share/lockstep/matrices/quick.cue"})
	c := exec.Command("chroot", run...)
	c.Env = config.Config.Env
	if text, err := c.CombinedOutput(); err != nil || !strings.Contains(string(text), quickRuns) {
		t.Errorf("run quick.cue in the image: %v\n%s", err, text)
	}
}

// unpackAll unpacks an archive with its permissions.
func unpackAll(t *testing.T, file, dir string) {
	t.Helper()
	if text, err := exec.Command("tar", "-xzpf", file, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", file, err, text)
	}
}

// checkMaterials checks that the bill of materials has the modules of the programs, with licences.
func checkMaterials(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		BOMFormat  string
		Components []struct {
			Name     string
			Evidence struct{ Licenses []any }
		}
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	var licensed []string
	for _, c := range bill.Components {
		if len(c.Evidence.Licenses) > 0 {
			licensed = append(licensed, c.Name)
		}
	}
	for _, want := range []string{"cuelang.org/go", "github.com/nats-io/nats.go", "github.com/twmb/franz-go"} {
		if !slices.Contains(licensed, want) {
			t.Errorf("%s has no licence in the bill of materials (%s, %d components)", want, bill.BOMFormat, len(bill.Components))
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
dpkg -i "/packages/1/$NAME"
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
ctl run --runs /tmp/runs /usr/share/lockstep/matrices/quick.cue
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
	c.Env = append(os.Environ(), "COPY="+t.TempDir(), "FIRST="+filepath.Dir(first), "NAME="+filepath.Base(first),
		"SECOND="+second, "SCRIPT="+life)
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
		`quick.cue: 10 cells`, quickRuns, `removed: 0 programs, MARK=1`, `purged: 0 folders, 0 users`,
	} {
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("want %s", want)
		}
	}
	if t.Failed() {
		t.Logf("it said:\n%s", text)
	}
}
