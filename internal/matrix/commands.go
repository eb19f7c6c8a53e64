package matrix

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
)

// Command is how the process of a driver is started.
type Command struct {
	Command []string
	Env     map[string]string
	Dir     string // seen from the file's folder
}

var driversRule = sync.OnceValue(func() *rule {
	v := cuecontext.New().CompileString(schemaSource, cue.Filename("schema.cue"))
	return compile(v.LookupPath(cue.ParsePath("#Drivers")))
})

// Commands reads a --drivers file, CUE or JSON: drivers that are processes of their own, by name. The error is Faults, all of them.
func Commands(file string, text []byte) (map[string]Command, error) {
	v := cuecontext.New().CompileBytes(text, cue.Filename(file))
	if err := v.Err(); err != nil {
		return nil, faultsOf(file, err)
	}
	var c checker
	named, ok := c.check(driversRule(), v, "").(map[string]any)
	if !ok || len(c.faults) > 0 {
		return nil, c.faults
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
			c.add(place(at), join("", name), err.Error())
		case len(command.Command) == 0 || command.Command[0] == "":
			c.add(place(at), join(name, "command"), `it names no program; give it and its arguments, as in ["python3", "driver.py"]`)
		}
		commands[name] = command
	}
	if len(commands) == 0 {
		c.add(v.Pos(), "", `no driver is named; name one, as in mine: command: ["python3", "driver.py"], or leave --drivers out`)
	}
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return commands, nil
}
