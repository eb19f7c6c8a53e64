package test

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/rogpeppe/go-internal/testscript"
)

// alter implements "alter ARCHIVE FILE COPY": it copies a zip archive and flips a bit in the first byte of FILE.
func alter(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: alter ARCHIVE FILE COPY")
	}
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	from, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	ts.Check(err)
	var copied bytes.Buffer
	to := zip.NewWriter(&copied)
	found := false
	for _, f := range from.File {
		r, err := f.Open()
		ts.Check(err)
		text, err := io.ReadAll(r)
		ts.Check(errors.Join(err, r.Close()))
		if f.Name == args[1] && len(text) > 0 {
			text[0] ^= 1
			found = true
		}
		w, err := to.Create(f.Name)
		ts.Check(err)
		_, err = w.Write(text)
		ts.Check(err)
	}
	if !found {
		ts.Fatalf("alter %s: no file %s, or it is empty", args[0], args[1])
	}
	ts.Check(to.SetComment(from.Comment))
	ts.Check(to.Close())
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), copied.Bytes(), 0o600))
}
