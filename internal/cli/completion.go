package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/lockstep/lockstep/internal/matrix"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// completeFlag adds shell completion to a flag of the command.
func completeFlag(c *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag does not exist, or has one already
	}
}

func completeDrivers(_ *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	return startingWith(start, drivers.Names()), cobra.ShellCompDirectiveNoFileComp
}

func completeMetrics(_ *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	return startingWith(start, valueNames()), cobra.ShellCompDirectiveNoFileComp
}

// valueNames returns the names of the values of tables, with those of the metrics of all drivers.
func valueNames() (names []string) {
	for _, v := range plan.Metrics(nil).Join(drivers.Metrics()...).Values() {
		names = append(names, v.Name)
	}
	return names
}

func startingWith(start string, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, start) })
}

func completeRuns(folder *string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
		all, err := runs.List(*folder)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ids := []string{"latest"}
		for _, s := range all {
			ids = append(ids, s.ID)
		}
		return startingWith(start, ids), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFleetRuns completes the runs of the fleet that the flags of the command line select, newest first.
func completeFleetRuns(s *serverFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second) // a shell waits for it
		defer cancel()
		if err := s.choose(c); err != nil || s.url == "" {
			return nil, cobra.ShellCompDirectiveError
		}
		conn, err := s.dial(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer conn.Close()
		all, err := conn.Runs(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ids := []string{"latest"}
		for _, r := range slices.Backward(all) {
			ids = append(ids, r.Run)
		}
		return startingWith(start, ids), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeAxes completes the axes of the run that is the first argument of the command.
func completeAxes(folder *string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return recordedPlan(*folder, args).Axes, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFilter completes axis=value with the axes and values of a run, which plan returns for the arguments.
func completeFilter(run func(c *cobra.Command, args []string) plan.Run) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
		r := run(c, args)
		axis, _, chosen := strings.Cut(start, "=")
		var all []string
		if !chosen {
			for _, name := range r.Axes {
				all = append(all, name+"=")
			}
			return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		for _, cell := range r.Cells {
			if value, has := cell.Coordinate(axis); has && !slices.Contains(all, axis+"="+value) {
				all = append(all, axis+"="+value)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// recordedPlan returns the plan of the run that is the first argument; empty if there is none.
func recordedPlan(folder string, args []string) plan.Run {
	if len(args) == 0 {
		return plan.Run{}
	}
	record, err := runs.Open(folder, args[0])
	if err != nil {
		return plan.Run{}
	}
	return record.Plan()
}

// expanded returns the run of the matrix file that is the first argument; empty if there is none, or it is invalid.
func expanded(c *cobra.Command, args []string) plan.Run {
	if len(args) == 0 {
		return plan.Run{}
	}
	run, err := expand(c.Context(), args[0], matrix.Narrow{})
	if err != nil {
		return plan.Run{}
	}
	return run
}
