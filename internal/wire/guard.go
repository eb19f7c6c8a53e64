package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// ErrPanic is wrapped by the error of what ended with a panic.
var ErrPanic = errors.New("an error in Lockstep, please report it")

// Guard calls do and returns its error, or one that wraps ErrPanic if it panics: the panic is logged with its stack. It
// is for the boundary at which one message or one request is handled: what a peer sends may be anything, and whatever
// that leads to, the process serves the others.
func Guard(log *slog.Logger, what string, do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			log.Error(ErrPanic.Error(), "in", what, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %s: %v", ErrPanic, what, r)
		}
	}()
	return do()
}
