package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/translate"
)

// importCommand writes matrices from the workloads of other tools.
func importCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "import",
		Short: "Convert a workload of another tool to a matrix",
		Long: `import converts a workload of another tool to a matrix (CUE). Settings without a counterpart are listed in a
comment of the matrix and on standard error.`,
	},
		importFrom("omb WORKLOAD.yaml DRIVER.yaml", "Convert a workload and a driver file of the OpenMessaging Benchmark",
			"  ctl import omb 1-topic-16-partitions-1kb.yaml kafka.yaml -f matrices/omb.cue", 2,
			func(in []translate.File) (*translate.Result, error) { return translate.OMB(in[0], in[1]) }),
		importFrom("perftest SCENARIO.json", "Convert a scenario file of RabbitMQ PerfTest (PerfTestMulti)",
			"  ctl import perftest publish-consume-spec.js | ctl vet /dev/stdin", 1,
			func(in []translate.File) (*translate.Result, error) { return translate.PerfTest(in[0]) }),
	)
}

func importFrom(use, short, example string, files int,
	from func([]translate.File) (*translate.Result, error)) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: arguments(cobra.ExactArgs(files)),
		RunE: func(c *cobra.Command, names []string) error {
			var in []translate.File
			var errs usageErrors
			for _, name := range names {
				text, err := os.ReadFile(name)
				if err != nil {
					errs.addf("read input of import: %w", err)
				}
				in = append(in, translate.File{Name: name, Text: text})
			}
			if err := errs.join(); err != nil {
				return err
			}
			result, err := from(in)
			if err != nil {
				return exit{ExitBadMatrix, err}
			}
			for _, lost := range result.Lost {
				fmt.Fprintln(c.ErrOrStderr(), lost)
			}
			formatted, err := matrix.Format(result.Matrix)
			if err != nil {
				return fmt.Errorf("write matrix: %w", err)
			}
			return writeMatrix(out, formatted, c.OutOrStdout())
		},
	}
	fileFlag(c, &out, "write to new `file` (default: standard output)")
	return c
}

// writeMatrix writes to a new file or to standard output. It never overwrites a file, which may have been edited.
func writeMatrix(file, text string, stdout io.Writer) error {
	if file == "" {
		_, err := io.WriteString(stdout, text)
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write matrix: %s already exists; remove it, or pass another name", file)
	}
	if err != nil {
		return fmt.Errorf("write matrix: %w", err)
	}
	if _, err = io.WriteString(f, text); err == nil {
		return f.Close()
	}
	return errors.Join(fmt.Errorf("write matrix: %w", err), f.Close())
}
