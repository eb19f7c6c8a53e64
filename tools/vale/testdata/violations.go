// Package violations has one violation per marked line, of the rule in the comment.
package violations

func violations() error {
	flags.StringVar(&ca, "ca", "", "the `file` of the authority")                                 // FlagHelp
	flags.StringVar(&ca, "ca", "", "Read the authority from `file`")                              // FlagHelp
	flags.StringVar(&ca, "ca", "", "read the authority from `file`.")                             // FlagHelp
	flags.StringVar(&ca, "ca", "", "read the authority from `file` (LOCKSTEP_CA)")                // FlagHelp
	flags.StringVar(&ca, "ca", "", "read the authority from `file`; the default is none")         // FlagHelp
	flags.StringVar(&ca, "ca", "", "use "+kind+" of all hosts, agents, observers, controllers, "+ // FlagLength
		"clients, viewers, brokers and hooks of the fleet and its control plane")
	fmt.Fprintf(w, "%-20s the send rate of %s\n", name, cell) // Terms
	if failed {
		return fmt.Errorf("the control plane says that run %s ended: %w", id, err) // Verbs
	}
	return errors.Join(
		errors.New("the broker confirmed "+count+" messages a second"), // Per
		errors.New("there is a fault in the matrix"),                   // Faults
		errors.New(`the report shows
the table of every cell, but
not the processing latency`)) // Terms
}
