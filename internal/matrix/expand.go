package matrix

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"

	"lockstep/internal/plan"
)

// chunk is a sequence of combinations that one worker evaluates.
type chunk struct {
	combos  [][]int
	results []result
	done    chan struct{}
}

type result struct {
	Combination
	errs Errors
}

// chunkSize is the maximum number of combinations in a chunk. The first chunks are smaller, so that the first cell is
// ready early.
const chunkSize = 128

// Expand yields the combinations in the order of the matrix, the first axis outermost. It evaluates ahead on all cores.
// After a combination with an error it stops yielding, but evaluates the rest. It then ends with all errors as one
// error of type Errors. When ctx ends, it ends with an error that wraps ctx's.
func (m *Matrix) Expand(ctx context.Context) iter.Seq2[Combination, error] {
	return func(yield func(Combination, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		found, seen, index := newFindings(nil), map[string][]int{}, 0
		for c := range m.start(ctx, &wg) {
			select {
			case <-c.done:
			case <-ctx.Done():
			}
			if ctx.Err() != nil { // chunks that were done after that may be incomplete
				yield(Combination{}, fmt.Errorf("expand matrix: %w", ctx.Err()))
				return
			}
			for i, r := range c.results {
				m.collect(r, c.combos[i], seen, found)
				if len(found.list) > 0 {
					continue
				}
				if r.Cell != nil {
					r.Cell.Index = index
					index++
				}
				if !yield(r.Combination, nil) {
					return
				}
			}
		}
		switch {
		case ctx.Err() != nil:
			yield(Combination{}, fmt.Errorf("expand matrix: %w", ctx.Err()))
		case len(found.list) > 0:
			yield(Combination{}, tidy(m.source.file, found.errs(), plan.NewScrubber(m.secrets)))
		}
	}
}

// start starts the evaluation and returns the chunks in order.
func (m *Matrix) start(ctx context.Context, wg *sync.WaitGroup) <-chan *chunk {
	workers := runtime.GOMAXPROCS(0)
	ordered, work := make(chan *chunk, 4*workers), make(chan *chunk)
	wg.Go(func() {
		defer close(ordered)
		defer close(work)
		m.chunks(func(c *chunk) bool {
			select {
			case ordered <- c:
			case <-ctx.Done():
				return false
			}
			select {
			case work <- c:
				return true
			case <-ctx.Done():
				return false
			}
		})
	})
	for range workers {
		wg.Go(func() {
			var w *worker
			for c := range work {
				w = m.run(ctx, w, c)
				close(c.done)
			}
		})
	}
	return ordered
}

// chunks divides the space into chunks.
func (m *Matrix) chunks(each func(*chunk) bool) {
	size, c := 1, &chunk{done: make(chan struct{})}
	for ordinal := range m.space.size() {
		combo := m.space.at(ordinal)
		if !m.space.kept(combo) {
			continue
		}
		c.combos = append(c.combos, combo)
		if len(c.combos) >= size {
			if !each(c) {
				return
			}
			size, c = min(2*size, chunkSize), &chunk{done: make(chan struct{})}
		}
	}
	if len(c.combos) > 0 {
		each(c)
	}
}

// run evaluates a chunk. It creates w if needed, and returns it.
func (m *Matrix) run(ctx context.Context, w *worker, c *chunk) *worker {
	c.results = make([]result, len(c.combos))
	for i, combo := range c.combos {
		if ctx.Err() != nil {
			return w
		}
		if p := m.skipped(combo); p != nil {
			c.results[i].Excluded = &plan.Excluded{Coordinates: m.space.coordinates(combo), Kind: "skipped",
				Reason: "by the pattern " + p.text + " at " + p.place}
			continue
		}
		if w == nil {
			var err error
			if w, err = newWorker(m); err != nil {
				c.results[i].errs = Errors{{File: m.source.file, Message: err.Error()}}
				w = nil
				continue
			}
		}
		c.results[i].Combination, c.results[i].errs = w.evaluate(combo)
	}
	return w
}

func (m *Matrix) skipped(combo []int) *pattern {
	for i := range m.skip {
		if m.skip[i].subsumes(combo) {
			return &m.skip[i]
		}
	}
	return nil
}

// collect adds a combination's errors to found. It also reports combinations that produce the same cell.
func (m *Matrix) collect(r result, combo []int, seen map[string][]int, found *findings) {
	for _, f := range r.errs {
		found.add(f, m.space.name(combo))
	}
	if r.Cell == nil {
		return
	}
	twin, twice := seen[r.Cell.ID]
	if !twice {
		seen[r.Cell.ID] = combo
		return
	}
	var names []string
	for a := range combo {
		if combo[a] != twin[a] {
			names = append(names, m.space.axes[a].name)
		}
	}
	first := names[0]
	msg := fmt.Sprintf("axis %s does not affect the cell: %s and %s are the same measurement; use axis.%s in the template, or in labels: {%s: axis.%s}",
		strings.Join(names, " or "), m.space.name(twin), m.space.name(combo), first, first, first)
	a := m.space.axes[m.space.find(first)]
	found.add(errorAt(a.place, join("axes", strings.Join(names, "+")), msg), "")
}

// Run collects the result of Expand into a run without an id and a start time.
func (m *Matrix) Run(ctx context.Context) (plan.Run, error) {
	run := m.base
	simulates := false
	for c, err := range m.Expand(ctx) {
		switch {
		case err != nil:
			return plan.Run{}, err
		case c.Cell != nil:
			run.Cells = append(run.Cells, *c.Cell)
			run.Agents = max(run.Agents, c.Cell.Agents())
			simulates = simulates || c.Cell.Workload.Network != plan.Network{}
		default:
			run.Excluded = append(run.Excluded, *c.Excluded)
		}
	}
	for i := range run.Cells { // cells without latency must be comparable with the others
		run.Cells[i].Simulated = simulates && run.Cells[i].Workload.Network == plan.Network{}
	}
	return run, nil
}
