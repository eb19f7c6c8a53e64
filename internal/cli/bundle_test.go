package cli

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/bundle"
)

// The first lines name the altered files, and the exit code is 6.
func TestVerifyPrintsAlteredFilesFirst(t *testing.T) {
	var out bytes.Buffer
	err := printVerification(&out, "x.zip",
		bundle.Verification{Altered: []error{errors.New("snapshots.jsonl is altered")},
			Unknown: []string{"the digest of the matrix"}, Notes: []string{"made by another"}})
	var heads []string
	for line := range strings.Lines(out.String()) {
		head, _, _ := strings.Cut(line, ":")
		heads = append(heads, head)
	}
	if got, want := strings.Join(heads, ", "), "altered, note, cannot be recomputed, x.zip"; got != want {
		t.Errorf("it prints %s, want %s\n%s", got, want, &out)
	}
	var left exit
	if !errors.As(err, &left) || left.code != ExitAltered {
		t.Errorf("it ends with %v, want code %d", err, ExitAltered)
	}
}

// Each page of a study links to the bundle of its short run. The bundle can be verified, and the tables of the page are
// those of the bundle.
func TestBundlesOfTheStudyPages(t *testing.T) {
	folder := filepath.Join("..", "..", "docs", "studies")
	link := regexp.MustCompile(`\]\((bundles/[a-z0-9-]+\.bundle\.zip)\)`)
	block := regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```$")
	pages, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages = slices.DeleteFunc(pages, func(page string) bool { return filepath.Base(page) == "README.md" })
	if len(pages) < 4 {
		t.Fatalf("%d pages, want one per study", len(pages))
	}
	for _, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			links := link.FindAllStringSubmatch(string(text), -1)
			if len(links) != 1 {
				t.Fatalf("%d links to bundles, want 1", len(links))
			}
			file := filepath.Join(folder, links[0][1])
			var out, errs bytes.Buffer
			if code := Ctl(t.Context(), []string{"bundle", "verify", file}, strings.NewReader(""), &out, &errs); code != 0 {
				t.Fatalf("ctl bundle verify leaves with %d\n%s%s", code, &out, &errs)
			}
			archive, err := zip.OpenReader(file)
			if err != nil {
				t.Fatal(err)
			}
			defer archive.Close()
			stored, err := archive.Open("run/tables.txt")
			if err != nil {
				t.Fatal(err)
			}
			tables, err := io.ReadAll(stored)
			if err != nil {
				t.Fatal(err)
			}
			known, shown := strings.Split(string(tables), "\n"), 0
			for _, b := range block.FindAllStringSubmatch(string(text), -1) {
				if !strings.Contains(b[1], "────") {
					continue // commands
				}
				for line := range strings.Lines(b[1]) {
					if shown++; !slices.Contains(known, strings.TrimSuffix(line, "\n")) {
						t.Errorf("the bundle does not contain the line %q", line)
					}
				}
			}
			if shown == 0 {
				t.Error("the page shows no table")
			}
		})
	}
}
