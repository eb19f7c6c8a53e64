package digest

import (
	"encoding/json"
	"io"
)

// maxJSON limits the JSON output in bytes. It is half of the size that a schedule stores for the output of all its
// comparison hooks.
const maxJSON = 32 << 10

// document is the JSON output. Long lists are shortened, and More has the numbers of omitted elements.
type document struct {
	Title string   `json:"title"`
	Lines []string `json:"lines,omitempty"` // the text output, in the order of its importance
	Digest
	More map[string]int `json:"more,omitempty"` // by the name of the list
}

// JSON writes the digest as one line of at most 32 KiB, so that a schedule can store it with the run.
func (d Digest) JSON(w io.Writer) error {
	whole := document{Title: d.Title(), Lines: d.lines(), Digest: d}
	for most := 256; ; most /= 2 {
		text, err := json.Marshal(whole.cut(most))
		if err != nil {
			return err
		}
		if len(text) < maxJSON || most == 0 {
			_, err = w.Write(append(text, '\n'))
			return err
		}
	}
}

// lines returns the lines of all sections, with the section's title as a prefix.
func (d Digest) lines() (all []string) {
	for _, s := range d.sections() {
		for _, l := range s.Lines {
			all = append(all, s.Title+": "+l.Text)
		}
	}
	return all
}

// cut returns a copy with at most that many elements per list.
func (t document) cut(most int) document {
	t.More = map[string]int{}
	t.Lines = first(t.Lines, most, t.More, "lines")
	t.Problems = first(t.Problems, most, t.More, "problems")
	t.Rules = first(t.Rules, most, t.More, "rules")
	t.Statuses = first(t.Statuses, most, t.More, "statuses")
	t.Shifts = first(t.Shifts, most, t.More, "shifts")
	t.New = first(t.New, most, t.More, "new")
	t.Subject = first(t.Subject, most, t.More, "subject")
	return t
}

func first[T any](all []T, most int, more map[string]int, name string) []T {
	if len(all) <= most {
		return all
	}
	more[name] = len(all) - most
	return all[:most]
}
