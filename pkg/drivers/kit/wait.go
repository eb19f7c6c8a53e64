package kit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Share limits one of n attempts to 1/n of the remaining time of ctx, so that a dead node does not use all of it.
func Share(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	end, limited := ctx.Deadline()
	if !limited || n <= 1 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/time.Duration(n))
}

// InTurn calls try with 0 to n-1 until it succeeds, and returns its result. Each call has its share of the remaining
// time of ctx, and its context ends when it returns. Without success, the errors of all calls are joined.
func InTurn[T any](ctx context.Context, n int, try func(ctx context.Context, i int) (T, error)) (T, error) {
	var errs []error
	for i := range n {
		each, cancel := Share(ctx, n-i)
		result, err := try(each, i)
		cancel()
		if err == nil {
			return result, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	var none T
	return none, errors.Join(errs...)
}

// Poll calls ask at intervals until it returns true, and returns its error. When ctx ends, it returns the error of ctx,
// with the last reason before why ask returned false, which may be nil.
func Poll(ctx context.Context, interval time.Duration, ask func() (done bool, why error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var why error
	for {
		done, reason := ask()
		if done {
			return reason
		}
		if why == nil || ctx.Err() == nil { // not the error of a request that the end of ctx has cancelled
			why = reason
		}
		select {
		case <-ctx.Done():
			if why == nil {
				return ctx.Err()
			}
			return fmt.Errorf("%w: %w", ctx.Err(), why)
		case <-ticker.C:
		}
	}
}

// maxAtOnce is the maximum number of concurrent calls of Each.
const maxAtOnce = 8

// Each calls do with 0 to n-1, at most eight at a time, and joins the errors.
func Each(n int, do func(i int) error) error {
	errs := make([]error, n)
	places := make(chan struct{}, maxAtOnce)
	var all sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			errs[i] = do(i)
			<-places
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
