package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/display"
	"example.org/lockstep/lockstep/internal/files"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire/keys"
)

// thisHost is the name of the context without a fleet: runs are executed by ctl itself.
const thisHost = "local"

// fleetContext is a saved fleet: the URL of its control plane and the absolute paths of the files with which ctl
// authenticates there.
type fleetContext struct {
	Server string `json:"server"`
	Creds  string `json:"creds,omitempty"`
	CA     string `json:"ca,omitempty"`
	Cert   string `json:"cert,omitempty"`
	Key    string `json:"key,omitempty"`
}

// contexts is the content of the file of saved fleets.
type contexts struct {
	Current  string                  `json:"current,omitempty"` // "": thisHost
	Contexts map[string]fleetContext `json:"contexts"`
}

// contextsFile returns the path of the user's file of saved fleets.
func contextsFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of contexts: %w; set HOME or XDG_CONFIG_HOME", err)
	}
	return filepath.Join(dir, "lockstep", "contexts.json"), nil
}

// readContexts reads the saved fleets. There are none without the file, and without a home folder.
func readContexts() (contexts, error) {
	saved := contexts{Contexts: map[string]fleetContext{}}
	name, homeless := contextsFile()
	text, err := os.ReadFile(name)
	if homeless != nil || errors.Is(err, fs.ErrNotExist) {
		return saved, nil
	}
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err = decoder.Decode(&saved); err != nil {
			err = fmt.Errorf("%s: %w; correct or remove the file", name, err)
		}
	}
	if err != nil {
		return saved, usageErrorf("read contexts: %w", err)
	}
	return saved, nil
}

// write replaces the file, which only this user can read.
func (s contexts) write() error {
	name, err := contextsFile()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(name), 0o700)
	}
	if err == nil {
		err = files.WriteSecret(name, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	return nil
}

// find returns a saved fleet by its name. The error lists the names.
func (s contexts) find(name string) (fleetContext, error) {
	f, known := s.Contexts[name]
	if known {
		return f, nil
	}
	names := append(slices.Sorted(maps.Keys(s.Contexts)), thisHost)
	if near := plan.ClosestMatch(name, names); near != "" {
		return f, usageErrorf("no context %q; did you mean %q?", name, near)
	}
	if len(s.Contexts) == 0 {
		return f, usageErrorf("no context %q: none is saved; save it: ctl context add %s --server URL", name,
			display.ShellWord(name))
	}
	return f, usageErrorf("no context %q; use one of %s, or add it: ctl context add", name, strings.Join(names, ", "))
}

// selectedFleet returns the URL of the fleet that a command without flags uses; "": none.
func selectedFleet() (string, error) {
	saved, err := readContexts()
	name := cmp.Or(os.Getenv("LOCKSTEP_CONTEXT"), saved.Current)
	return cmp.Or(os.Getenv("LOCKSTEP_SERVER"), saved.Contexts[name].Server), err
}

// fleetFlags returns the flags with which a command uses the fleet of a recorded run, whose URL is redacted. A local
// run has no URL. There are no flags if a command without flags uses that fleet.
func fleetFlags(server string) (string, error) {
	selected, err := selectedFleet()
	switch {
	case err != nil:
		return "", err
	case plan.Redact(selected) == server:
		return "", nil
	case server == "":
		return " --context " + thisHost, nil
	}
	saved, err := readContexts()
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(saved.Contexts)) {
		if plan.Redact(saved.Contexts[name].Server) == server {
			return " --context " + display.ShellWord(name), nil
		}
	}
	return " --server " + display.ShellWord(server), nil
}

func completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	saved, err := readContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return append(slices.Sorted(maps.Keys(saved.Contexts)), thisHost), cobra.ShellCompDirectiveNoFileComp
}

func contextCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "context",
		Short: "Save fleets, and select the one that commands use",
		Long: `context manages saved fleets: the URL of the control plane, and the files with which ctl authenticates. They are
stored in lockstep/contexts.json in the user's configuration folder, readable only by the user. Passwords and tokens are
not stored; LOCKSTEP_TOKEN, or LOCKSTEP_USER and LOCKSTEP_PASSWORD, are used if a context has no key file.

The first of these selects the fleet of a command: --server, --context, LOCKSTEP_SERVER, LOCKSTEP_CONTEXT, and the
context of ctl context use. The context local is this host: runs are executed by ctl itself.`,
		Example: `  ctl context add bench --server tls://bench-1:4222 --creds creds/client.nk --ca creds/ca.crt
  ctl context use bench
  ctl run --context local matrices/quick.cue`,
	}, contextAdd(), contextUse(), contextList(), contextRemove())
}

func contextAdd() *cobra.Command {
	var s serverFlags
	c := &cobra.Command{
		Use:   "add NAME",
		Short: "Save a fleet",
		Long: `add saves a fleet with the given flags. Their defaults are those of the environment. The control plane is not
contacted: check it with ctl doctor --context NAME.`,
		Example: "  ctl context add bench --server tls://bench-1:4222 --creds creds/client.nk --ca creds/ca.crt",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			name := args[0]
			saved, err := readContexts()
			if err != nil {
				return err
			}
			errs := usageErrors{keys.CheckName(name), s.check()}
			if _, exists := saved.Contexts[name]; exists {
				errs.addf("context %s already exists; remove it first: ctl context remove %s", name, name)
			}
			if name == thisHost {
				errs.addf("context local is this host; choose another name")
			}
			if s.url == "" {
				errs.addf("no server given: pass --server nats://host:port")
			}
			if err := errs.join(); err != nil {
				return err
			}
			for _, f := range s.files() {
				if *f.path != "" {
					*f.path = absolute(*f.path)
				}
			}
			saved.Contexts[name] = fleetContext{Server: s.url, Creds: s.creds, CA: s.ca, Cert: s.cert, Key: s.key}
			if err := saved.write(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "context %s added; select it: ctl context use %s\n", name, name)
			return err
		},
	}
	s.add(c, "")
	return c
}

func contextUse() *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Select the fleet of later commands, or local for this host",
		Example:           "  ctl context use bench\n  ctl context use local",
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeContexts,
		RunE: func(c *cobra.Command, args []string) error {
			saved, err := readContexts()
			if err != nil {
				return err
			}
			text := "this host, without a fleet"
			saved.Current = ""
			if args[0] != thisHost {
				f, err := saved.find(args[0])
				if err != nil {
					return err
				}
				saved.Current, text = args[0], "the fleet at "+plan.Redact(f.Server)
			}
			if err := saved.write(); err != nil {
				return err
			}
			for _, variable := range []string{"LOCKSTEP_SERVER", "LOCKSTEP_CONTEXT"} {
				if os.Getenv(variable) != "" {
					fmt.Fprintf(c.ErrOrStderr(), "%s is set and has priority; unset it to use the context\n", variable)
				}
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "commands use %s\n", text)
			return err
		},
	}
}

func contextList() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the saved fleets, and mark the selected one",
		Example: "  ctl context list",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			saved, err := readContexts()
			if err != nil {
				return err
			}
			for name, f := range saved.Contexts {
				f.Server = plan.Redact(f.Server)
				saved.Contexts[name] = f
			}
			if format == "json" {
				return printJSON(c.OutOrStdout(), saved)
			}
			var rows [][]string
			for _, name := range append(slices.Sorted(maps.Keys(saved.Contexts)), thisHost) {
				mark := ""
				if name == cmp.Or(saved.Current, thisHost) {
					mark = "*"
				}
				f := saved.Contexts[name]
				rows = append(rows, []string{mark, name, display.Dash(f.Server), display.Dash(f.Creds), display.Dash(f.CA)})
			}
			return tabulate(c.OutOrStdout(), []string{"", "CONTEXT", "SERVER", "CREDS", "CA"}, rows)
		},
	}
	formatFlag(c, &format, "text", "json")
	return c
}

func contextRemove() *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME",
		Short:             "Remove a saved fleet; its credentials are kept",
		Example:           "  ctl context remove bench",
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeContexts,
		RunE: func(c *cobra.Command, args []string) error {
			saved, err := readContexts()
			if err != nil {
				return err
			}
			if args[0] == thisHost {
				return usageErrorf("context local is this host and cannot be removed; name a saved fleet")
			}
			if _, err := saved.find(args[0]); err != nil {
				return err
			}
			delete(saved.Contexts, args[0])
			if saved.Current == args[0] {
				saved.Current = ""
			}
			if err := saved.write(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "context %s removed\n", args[0])
			return err
		},
	}
}
