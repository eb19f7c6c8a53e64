//go:build !windows

package terminal

import "os"

// sequences reports whether a terminal supports control sequences.
func sequences(*os.File) bool { return true }
