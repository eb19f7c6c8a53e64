package matrix

// Command is the command line of an external driver.
type Command struct {
	Command []string
	Env     map[string]string
	Dir     string // relative to the directory of the file
}

// Commands reads a --drivers file, CUE or JSON: external drivers by name. The error is of type Errors and contains all
// errors.
func Commands(file string, text []byte) (map[string]Command, error) {
	commands := map[string]Command{}
	_, err := readNamed(file, text, "#Drivers", "", Command{}, func(name string, c *Command) []problem {
		commands[name] = *c
		var out problems
		out.report(len(c.Command) == 0 || c.Command[0] == "", ".command",
			`the program is missing; give it and its arguments, as in ["python3", "driver.py"]`)
		return out
	}, `the file has no driver; add one, as in mine: command: ["python3", "driver.py"], or omit --drivers`)
	return commands, err
}
