package history

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// Indexed is the result of filling a history.
type Indexed struct {
	Runs     int      // read
	Outcomes int      // in these runs
	Gone     int      // runs in the history without a record
	Warnings []string // runs that could not be read, with the reasons
}

// IndexedRun is the state of a run in the history.
type IndexedRun struct {
	Matrix  string    `json:"matrix"`
	Started time.Time `json:"started"`
	Done    int       `json:"done"`
	Tasks   int       `json:"tasks"`
	Stamp   string    `json:"stamp"` // of its record, when it was read
}

// valuesOf returns the values of an outcome. Values of groups have the group's name as a prefix.
func valuesOf(o plan.Outcome) map[string]plan.Value {
	all := map[string]plan.Value{}
	maps.Copy(all, o.Values)
	for _, g := range o.Groups {
		for name, v := range g.Values {
			all[g.Name+"/"+name] = v
		}
	}
	return all
}

// subjectOf returns the broker of an outcome. With side-by-side brokers it has the settings of all of them, with the
// group's name as a prefix.
func subjectOf(o plan.Outcome) plan.Subject {
	subject := o.Subject
	for _, g := range o.Groups {
		if g.Subject == nil {
			continue
		}
		if subject.Settings == nil || g.Name == o.Groups[0].Name {
			subject = plan.Subject{Settings: map[string]string{}}
		}
		for name, value := range flat(*g.Subject) {
			subject.Settings[g.Name+"/"+name] = value
		}
	}
	if subject.Fingerprint == "" {
		subject.Fingerprint = plan.Fingerprint(subject)
	}
	return subject
}

func fingerprint(words []string) string {
	sum := sha256.Sum256([]byte("environment-1\x00" + strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:6])
}
