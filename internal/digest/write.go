package digest

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"lockstep/internal/compare"
	"lockstep/internal/display"
	"lockstep/internal/report"
)

// Line formats a shift: "mode=a: publish.rate 10,012 → 8,940 (−11 %), p 0.001, in the last 2 runs".
func (s Shift) Line() string {
	if s.Count > 0 {
		return fmt.Sprintf("%d of %d cells: %s %s, in %s", s.Count, s.Of, s.Title, display.Change(s.Change),
			display.Count(s.Runs, "run"))
	}
	return fmt.Sprintf("%s: %s %s → %s (%s), p %.2g, in the last %d runs", s.Cell, s.Title,
		report.Format(s.Unit, s.Before), report.Format(s.Unit, s.After), display.Change(s.Change), s.P, s.Runs)
}

// Line formats a status: "mode=a: consume.rate: numeric in 36 of 36 runs, backlog since 20260107-020000-nightly (4
// runs)".
func (s Status) Line() string {
	where := s.Cells[0]
	if s.Count > 1 {
		where = display.Count(s.Count, "cell")
	}
	return fmt.Sprintf("%s: %s: %s in %d of %s, %s since %s (%s)", where, strings.Join(s.Values, ", "), s.Before,
		s.Earlier, display.Count(s.Of, "run"), s.Status, s.Since, display.Count(s.Runs, "run"))
}

// section is a title with its lines.
type section struct {
	Title string
	Lines []line
	None  string // shown if there are no lines; empty: the section is left out
}

type line struct {
	Text string
	Subs []string
	Mark compare.Finding
}

// Title summarises the digest in one line.
func (d Digest) Title() string {
	var words []string
	if n := d.Worse(); n > 0 {
		words = append(words, fmt.Sprintf("%d worse", n))
	}
	if n := len(d.Problems); n > 0 {
		words = append(words, display.Count(n, "problem"))
	}
	if n := len(d.Rules); n > 0 {
		words = append(words, display.Count(n, "rule")+" not met")
	}
	if d.Unfinished != "" {
		words = append(words, "incomplete")
	}
	if len(words) == 0 {
		words = []string{"nothing got worse"}
		if d.Tested == 0 {
			words = []string{"no earlier runs to compare with"}
		}
	}
	return d.Matrix + ": " + strings.Join(words, ", ")
}

// sections returns the contents of both text formats, in the order of importance.
func (d Digest) sections() (all []section) {
	shifts := section{Title: "Changes"}
	for _, x := range d.Statuses {
		l := line{Text: string(x.Finding) + ": " + x.Line(), Mark: x.Finding}
		if x.Count > 1 {
			l.Subs = names(x.Cells[:min(len(x.Cells), maxListed)], x.Count)
		}
		shifts.Lines = append(shifts.Lines, l)
	}
	if shifts.None = "No change."; d.Tested == 0 {
		shifts.None = "Too few runs for an alarm."
	}
	for _, s := range d.Shifts {
		l := line{Text: string(s.Finding) + ": " + s.Line(), Mark: s.Finding,
			Subs: []string{"since " + s.Since + ", " + s.At.UTC().Format("2006-01-02 15:04 UTC")}}
		l.Subs = append(append(l.Subs, names(s.Cells, s.Count)...), s.Causes...)
		if len(s.Causes) == 0 {
			l.Subs = append(l.Subs, "no recorded setting or version changed")
		}
		shifts.Lines = append(shifts.Lines, l)
	}
	all = append(all, shifts)
	plain := func(title string, texts []string) {
		s := section{Title: title}
		for _, text := range texts {
			s.Lines = append(s.Lines, line{Text: text})
		}
		all = append(all, s)
	}
	if d.Unfinished != "" {
		plain("Incomplete", []string{d.Unfinished + ": the run is still active, or was stopped (resume it with ctl run --resume " +
			d.Run + ")"})
	}
	plain("Problems", d.Problems)
	var rules []string
	for _, r := range d.Rules {
		rules = append(rules, r.String())
	}
	plain("Rules not met", rules)
	plain("Changes since the previous run", d.Subject)
	plain("New cells", d.New)
	return all
}

// names lists the first cells of a change, and the number of the others.
func names(first []string, of int) []string {
	if more := of - len(first); more > 0 {
		return append(slices.Clone(first), fmt.Sprintf("and %d more", more))
	}
	return first
}

// Remark is an annotation for dashboards. Kind is "worse", "better" or "rule".
type Remark struct{ Kind, Text string }

// Remarks returns the changes for the worse or better, and the rules that are not met.
func (d Digest) Remarks() (all []Remark) {
	for _, s := range d.Statuses {
		all = append(all, Remark{string(s.Finding), s.Line()})
	}
	for _, s := range d.Shifts {
		all = append(all, Remark{string(s.Finding), s.Line() + ", since " + s.Since})
	}
	for _, r := range d.Rules {
		all = append(all, Remark{"rule", r.String()})
	}
	return all
}

// about describes the basis of the digest.
func (d Digest) about() string {
	if d.Tested == 0 && d.Untested == 0 {
		return "No alarm is possible: no value of this run is a usable number."
	}
	if d.Tested == 0 {
		return fmt.Sprintf("No alarm is possible yet: %d series have too few runs.", d.Untested)
	}
	text := fmt.Sprintf("Alarms are possible in %d series; the probability of any false alarm in a scheduled run is at most 5 %% with normal noise (docs/history.md)", d.Tested)
	if d.Untested > 0 {
		text += fmt.Sprintf("; %d more have too few runs", d.Untested)
	}
	return text + "."
}

// Markdown writes the digest for chats and mails.
func (d Digest) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nRun `%s`, %s. %s.\n", report.MarkdownText(d.Title()), d.Run,
		d.Started.UTC().Format("2006-01-02 15:04 UTC"), report.MarkdownText(d.Summary))
	for _, s := range d.sections() {
		if len(s.Lines) == 0 && s.None == "" {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n", report.MarkdownText(s.Title))
		if len(s.Lines) == 0 {
			b.WriteString(s.None + "\n")
		}
		for _, l := range s.Lines {
			fmt.Fprintf(&b, "- %s\n", report.MarkdownText(l.Text))
			for _, sub := range l.Subs {
				fmt.Fprintf(&b, "  - %s\n", report.MarkdownText(sub))
			}
		}
	}
	fmt.Fprintf(&b, "\n%s\n", d.about())
	_, err := io.WriteString(w, b.String())
	return err
}

//go:embed digest.html
var source string

var sheet = template.Must(template.New("digest").Parse(source))

// HTML writes the digest as one file without external resources and scripts.
func (d Digest) HTML(w io.Writer) error {
	return sheet.Execute(w, map[string]any{"Title": d.Title(), "Digest": d, "Sections": d.sections(),
		"About": d.about(), "At": d.Started.UTC().Format("2006-01-02 15:04 UTC")})
}
