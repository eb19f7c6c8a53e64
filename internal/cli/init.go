package cli

import (
	"cmp"
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/matrix"
)

//go:embed init.cue.tmpl
var initText string

var initTemplate = template.Must(template.New("init").Parse(initText))

func initCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "init DRIVER",
		Short: "Write a commented matrix for a driver, to be edited",
		Long: `init writes a small matrix for a broker with default settings on this host. Its axes are publish modes, threads and
message sizes, and each cell is measured three times. Edit the address of the broker and the axes, check the file with ctl vet, and run
it with ctl run.`,
		Example: `  ctl init rabbitmq -f rabbitmq.cue
  ctl init kafka | ctl plan /dev/stdin`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeDrivers,
		RunE: func(c *cobra.Command, args []string) error {
			d, err := lookupDriver(args[0])
			if err != nil {
				return err
			}
			name := args[0]
			var text strings.Builder
			err = initTemplate.Execute(&text, map[string]string{
				"Driver": name, "Package": strings.NewReplacer("-", "_", ".", "_").Replace(name),
				"Options": cmp.Or(strings.ReplaceAll(d.Info().Example, "\n", "\n\t\t"), "// see ctl drivers "+name),
			})
			if err != nil {
				return err
			}
			formatted, err := matrix.Format(text.String())
			if err != nil {
				return fmt.Errorf("write matrix: the driver's example is invalid: %w", err)
			}
			return writeMatrix(out, formatted, c.OutOrStdout())
		},
	}
	fileFlag(c, &out, "write to new `file` (default: standard output)")
	withDrivers(c)
	return c
}
