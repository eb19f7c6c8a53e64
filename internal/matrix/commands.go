package matrix

import (
	"encoding/json"
	"maps"
	"slices"

	"cuelang.org/go/cue"
)

// Command is the command line of an external driver.
type Command struct {
	Command []string
	Env     map[string]string
	Dir     string // relative to the directory of the file
}

// Commands reads a --drivers file, CUE or JSON: external drivers by name. The error is of type Errors and contains all
// errors.
func Commands(file string, text []byte) (map[string]Command, error) {
	v, named, errs := readFile(file, text, "#Drivers")
	if len(errs) > 0 {
		return nil, errs
	}
	commands := make(map[string]Command, len(named))
	for _, name := range slices.Sorted(maps.Keys(named)) {
		at := v.LookupPath(cue.MakePath(cue.Str(name)))
		raw, err := json.Marshal(named[name])
		command := Command{}
		if err == nil {
			err = json.Unmarshal(raw, &command)
		}
		switch {
		case err != nil:
			errs = append(errs, errorAt(place(at), join("", name), err.Error()))
		case len(command.Command) == 0 || command.Command[0] == "":
			errs = append(errs, errorAt(place(at), join(name, "command"),
				`the program is missing; give it and its arguments, as in ["python3", "driver.py"]`))
		}
		commands[name] = command
	}
	if len(commands) == 0 {
		errs = Errors{{File: file,
			Message: `the file has no driver; add one, as in mine: command: ["python3", "driver.py"], or omit --drivers`}}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return commands, nil
}
