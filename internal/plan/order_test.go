package plan

import (
	"fmt"
	"slices"
	"testing"
)

func runOf(cells, repeat int, order Order) Run {
	r := Run{ID: "r", Repeat: repeat, Order: order}
	for i := range cells {
		r.Cells = append(r.Cells, Cell{ID: fmt.Sprintf("c%d", i), Index: i})
	}
	return r
}

func ids(tasks []Task) []string {
	out := make([]string, len(tasks))
	for i, t := range tasks {
		out[i] = t.ID
	}
	return out
}

// Repetitions of a cell are not executed directly one after the other, because they would share a temporary
// change of the system.
func TestTasksInterleave(t *testing.T) {
	got := ids(runOf(3, 2, Order{}).Tasks())
	want := []string{"c0-r1", "c1-r1", "c2-r1", "c0-r2", "c1-r2", "c2-r2"}
	if !slices.Equal(got, want) {
		t.Errorf("tasks %v, want %v", got, want)
	}
}

func TestTasksRandom(t *testing.T) {
	run := runOf(20, 2, Order{Random: true, Seed: 7})
	got := ids(run.Tasks())
	if !slices.Equal(got, ids(run.Tasks())) {
		t.Error("the same seed gives another order: a run could not be resumed")
	}
	if slices.Equal(got, ids(runOf(20, 2, Order{Random: true, Seed: 8}).Tasks())) {
		t.Error("another seed gives the same order")
	}
	for rep := range 2 {
		part := slices.Clone(got[rep*20 : rep*20+20])
		slices.Sort(part)
		want := ids(runOf(20, 2, Order{}).Tasks()[rep*20 : rep*20+20])
		slices.Sort(want)
		if !slices.Equal(part, want) {
			t.Errorf("repetition %d is not every cell once: %v", rep+1, part)
		}
	}
	if first, second := run.Tasks()[:20], run.Tasks()[20:]; slices.EqualFunc(first, second,
		func(a, b Task) bool { return a.Cell.ID == b.Cell.ID }) {
		t.Error("both repetitions have the same order: what follows what would never change")
	}
}

func taskOf(publisherNodes, publishers, consumerNodes, consumers int, colocate bool) Task {
	w := Default()
	w.Publishers.Nodes, w.Publishers.Threads = publisherNodes, publishers
	w.Consumers.Nodes, w.Consumers.Threads, w.Consumers.Colocate = consumerNodes, consumers, colocate
	return Task{ID: "t", Cell: Cell{Workload: w}}
}

func TestAssign(t *testing.T) {
	none := func(total int) Share { return Share{Total: total} } // no share, but with the total
	for _, c := range []struct {
		name string
		task Task
		want [][2]Share
	}{
		{"roles apart", taskOf(2, 3, 1, 4, false),
			[][2]Share{{{0, 3, 6}, none(4)}, {{3, 3, 6}, none(4)}, {none(6), {0, 4, 4}}}},
		{"colocated", taskOf(1, 2, 2, 1, true), [][2]Share{{{0, 2, 2}, {0, 1, 2}}, {none(2), {1, 1, 2}}}},
		{"no consumers", taskOf(1, 1, 0, 1, false), [][2]Share{{{0, 1, 1}, none(0)}}},
	} {
		got := Assign(c.task, []string{"a", "b", "c", "d"})
		if len(got) != len(c.want) {
			t.Errorf("%s: %d agents used, want %d", c.name, len(got), len(c.want))
			continue
		}
		for i, a := range got {
			if a.Publishers != c.want[i][0] || a.Consumers != c.want[i][1] || a.Index != i ||
				a.Agent != []string{"a", "b", "c", "d"}[i] {
				t.Errorf("%s: agent %d is %s (%d) with publishers %v and consumers %v, want %v", c.name, i, a.Agent,
					a.Index, a.Publishers, a.Consumers, c.want[i])
			}
			if a.Deadline.D() < c.task.Cell.Workload.Measure.D() {
				t.Errorf("%s: the deadline %s is shorter than the measurement", c.name, a.Deadline)
			}
		}
	}
}
