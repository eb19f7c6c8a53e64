package cli

import "github.com/spf13/cobra"

// accessFlags are the folders and environment variables of a daemon's host that references may read.
type accessFlags struct {
	folders, variables []string
}

// add adds the flags. who names the readers in the help: "matrices".
func (a *accessFlags) add(c *cobra.Command, who string) {
	c.Flags().StringArrayVar(&a.folders, "files", nil,
		"allow "+who+" to read files below an absolute `folder`; repeatable (default: none)")
	c.Flags().StringArrayVar(&a.variables, "env", nil,
		"allow "+who+" to read variable `NAME`; repeatable (default: none)")
}
