package terminal

import (
	"os"

	"golang.org/x/sys/windows"
)

// sequences enables control sequences on a console, and reports whether it supports them: since Windows 10.
func sequences(f *os.File) bool {
	var mode uint32
	console := windows.Handle(f.Fd())
	if windows.GetConsoleMode(console, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
