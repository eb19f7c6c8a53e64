package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// ErrPanic is wrapped by errors that come from a panic.
var ErrPanic = errors.New("internal error of Lockstep; please report it")

// Guard calls do and returns its error. If do panics, Guard logs the panic with its stack and returns an error that
// wraps ErrPanic. It is used for each message and request: peers may send anything.
func Guard(log *slog.Logger, what string, do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			log.Error(ErrPanic.Error(), "in", what, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %s: %v", ErrPanic, what, r)
		}
	}()
	return do()
}
