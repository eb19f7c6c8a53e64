package runs

import (
	"maps"
	"slices"

	"lockstep/internal/plan"
	"lockstep/internal/record"
)

// redactOutcome returns o with the password of every URL in its texts replaced. It does not change o.
func redactOutcome(o plan.Outcome) plan.Outcome {
	o.Reasons, o.Warnings = redactAll(o.Reasons), redactAll(o.Warnings)
	o.Groups = slices.Clone(o.Groups)
	for i := range o.Groups {
		g := &o.Groups[i]
		g.Reasons, g.Warnings = redactAll(g.Reasons), redactAll(g.Warnings)
		if g.Subject != nil {
			s := redactSubject(*g.Subject)
			g.Subject = &s
		}
	}
	o.Events = slices.Clone(o.Events)
	for i := range o.Events {
		o.Events[i].Detail = plan.Redact(o.Events[i].Detail)
	}
	o.Agents = slices.Clone(o.Agents)
	for i := range o.Agents {
		o.Agents[i].Error = plan.Redact(o.Agents[i].Error)
	}
	o.Tries = slices.Clone(o.Tries)
	for i := range o.Tries {
		o.Tries[i].Reason = plan.Redact(o.Tries[i].Reason)
	}
	if o.Search != nil {
		search := *o.Search
		search.Why, search.Steps = plan.Redact(search.Why), slices.Clone(search.Steps)
		for i := range search.Steps {
			search.Steps[i].Why = plan.Redact(search.Steps[i].Why)
		}
		o.Search = &search
	}
	o.Subject = redactSubject(o.Subject)
	return o
}

func redactSubject(s plan.Subject) plan.Subject {
	s.Endpoints, s.Members, s.Settings = redactAll(s.Endpoints), redactAll(s.Members), maps.Clone(s.Settings)
	for key, v := range s.Settings {
		s.Settings[key] = plan.Redact(v)
	}
	return s
}

func redactAll(texts []string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = plan.Redact(texts[i])
	}
	return texts
}

// redactSnapshot does the same for the texts of a snapshot.
func redactSnapshot(s record.Snapshot) record.Snapshot {
	s.Events = slices.Clone(s.Events)
	for i := range s.Events {
		s.Events[i].Detail = plan.Redact(s.Events[i].Detail)
	}
	return s
}
