package terminal

import (
	"os"

	"golang.org/x/sys/windows"
)

// sequences has a console understand control sequences, and reports whether it does: those before Windows 10 do not.
func sequences(f *os.File) bool {
	var mode uint32
	console := windows.Handle(f.Fd())
	if windows.GetConsoleMode(console, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
