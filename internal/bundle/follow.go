package bundle

import (
	"errors"
	"path"
	"slices"
	"strings"
)

// fault is an error about one file of a bundle. It wraps ErrAltered.
type fault struct {
	name string
	error
}

func (f fault) Unwrap() error { return f.error }

// follow sets apart what is only said because of files that Unpack found altered: an altered snapshot changes every value of its task, and the tables.
func (k *check) follow(faults []error) {
	if len(faults) == 0 {
		return
	}
	var names []string
	for _, err := range faults {
		var f fault
		if errors.As(err, &f) {
			names = append(names, f.name)
		}
	}
	apart := func(lines []string) []string {
		return slices.DeleteFunc(lines, func(line string) bool {
			follows := slices.ContainsFunc(names, func(name string) bool { return comes(line, name) })
			if follows {
				k.Follows = append(k.Follows, line)
			}
			return follows
		})
	}
	k.Differences, k.Unknown = apart(k.Differences), apart(k.Unknown)
	first := len(faults)
	k.Altered = append(k.Altered[:first:first], slices.DeleteFunc(slices.Clone(k.Altered[first:]), func(err error) bool {
		return len(apart([]string{err.Error()})) == 0
	})...)
}

// comes tells whether what a line says comes of an altered file: it is of that file or of the same task, or of what is made of all tasks.
func comes(line, name string) bool {
	if strings.HasPrefix(line, name) || name == path.Join(runDir, "run.json") {
		return true
	}
	task, of := taskOf(name)
	other, also := taskOf(line)
	return of && (!also || task == other)
}

// taskOf is the task that a file's name, or a line that begins with one, is of; the tries of a task are its own.
func taskOf(name string) (task string, of bool) {
	rest, of := strings.CutPrefix(name, runDir+"/tasks/")
	if i := strings.IndexAny(rest, "/: "); i >= 0 {
		rest = rest[:i]
	}
	task, _, _ = strings.Cut(rest, ".try")
	return task, of
}
