package sampling

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/rules"
)

// study returns a run of two cells with a stop rule.
func study(t testing.TB, rule string, repeat int) plan.Run {
	t.Helper()
	u, err := rules.ParseStopRule(rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Run{ID: "run", Cells: []plan.Cell{{ID: "a"}, {ID: "b", Index: 1}}, Repeat: repeat, Until: &u}
}

func measured(cell string, repetition int, rate float64) plan.Outcome {
	return plan.Outcome{Task: fmt.Sprintf("%s-r%d", cell, repetition), Cell: cell, Repetition: repetition,
		Verdict: plan.Valid, Values: map[string]plan.Value{"publish.rate": {Number: rate}}}
}

// rates are the values of a quiet and of a noisy cell.
var rates = map[string]func(int) float64{
	"a": func(n int) float64 { return 1000 + float64(n%3) },
	"b": func(n int) float64 { return 1000 + 400*float64(n%2) },
}

// execute executes every needed task, like a controller, and returns the number of repetitions of each cell.
func execute(run plan.Run, rounds *Rounds, outcome func(plan.Task) plan.Outcome) map[string]int {
	times := map[string]int{}
	for _, task := range run.Tasks() {
		if rounds.Needed(task) {
			times[task.Cell.ID]++
			rounds.Add(outcome(task))
		}
	}
	return times
}

func TestNoisyCellsAreRepeatedMore(t *testing.T) {
	run := study(t, "ci < 5%", 10)
	rounds := New(run)
	if !rounds.Open() || rounds.Tasks() != 20 || rounds.Cell("a").Over {
		t.Errorf("at the beginning: open %v, %d tasks, %+v", rounds.Open(), rounds.Tasks(), rounds.Cell("a"))
	}
	times := execute(run, rounds, func(x plan.Task) plan.Outcome {
		return measured(x.Cell.ID, x.Repetition, rates[x.Cell.ID](x.Repetition))
	})
	if times["a"] != 6 || times["b"] != 10 || rounds.Open() || rounds.Tasks() != 16 {
		t.Errorf("measured %v, open %v, %d tasks; want 6 times and 10", times, rounds.Open(), rounds.Tasks())
	}
	if a := rounds.Cell("a"); !a.Over || !a.Reached || a.Numbers != 6 || rounds.Missed("a") != "" {
		t.Errorf("the quiet cell: %+v, %q", a, rounds.Missed("a"))
	}
	if got, want := rounds.Missed("b"),
		"ci of publish.rate is ±17 % after 10 repetitions, wanted: ci < 5%"; got != want {
		t.Errorf("the noisy cell: %q, want %q", got, want)
	}
	if rounds.Needed(plan.Task{Cell: run.Cells[0], Repetition: 7}) ||
		!rounds.Needed(plan.Task{Cell: run.Cells[0], Repetition: 6}) {
		t.Error("the seventh repetition of the quiet cell is needed, or its sixth is not")
	}
}

// Decisions depend only on the outcomes, not on their order or on the time of reading, at every moment of a run.
func TestDecisionsAreOfOutcomesAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 150 {
		run := study(t, []string{"ci < 5%", "ci < 2% at 80%", "ci(publish.rate) < 20% at 90%"}[n%3], 10)
		noise := []float64{0, 0.01, 0.05, 0.2, 1}[random.IntN(5)]
		leading := New(run)
		var outcomes []plan.Outcome
		execute(run, leading, func(x plan.Task) plan.Outcome {
			again := New(run) // a leader takes over here
			for _, i := range random.Perm(len(outcomes)) {
				again.Add(outcomes[i])
			}
			for _, task := range run.Tasks() {
				if leading.Needed(task) != again.Needed(task) {
					t.Fatalf("after %d outcomes task %s is needed: %v, and for who takes over: %v", len(outcomes),
						task.ID, leading.Needed(task), again.Needed(task))
				}
			}
			if a, b := leading.Tasks(), again.Tasks(); a != b || leading.Open() != again.Open() ||
				leading.Missed("a") != again.Missed("a") || leading.Cell("b") != again.Cell("b") {
				t.Fatalf("after %d outcomes: %d tasks, and for who takes over %d", len(outcomes), a, b)
			}
			o := measured(x.Cell.ID, x.Repetition, 1000*(1+noise*random.NormFloat64()))
			if random.IntN(10) == 0 {
				o.Verdict = plan.Unknown
			}
			outcomes = append(outcomes, o)
			return o
		})
		if len(outcomes) != leading.Tasks() || leading.Open() {
			t.Fatalf("%d outcomes of %d tasks, open: %v", len(outcomes), leading.Tasks(), leading.Open())
		}
		for _, id := range []string{"a", "b"} {
			c := leading.Cell(id)
			if c.Repeat < min(10, MinRepetitions(*run.Until)) || c.Repeat > 10 || c.Done != c.Repeat ||
				c.Reached != (c.Known && c.Part < run.Until.Within) || !c.Reached && c.Repeat != 10 {
				t.Fatalf("cell %s of noise %v: %+v", id, noise, c)
			}
		}
	}
}

// Values that are part of a submission count like those of outcomes. A task without a number counts as done.
func TestResumedRunsDecideAsTheyWould(t *testing.T) {
	run := study(t, "ci < 5%", 10)
	whole, resumed := New(run), New(run)
	for _, task := range run.Tasks()[:12] {
		o := measured(task.Cell.ID, task.Repetition, rates[task.Cell.ID](task.Repetition))
		if task.Repetition == 2 {
			o.Verdict = plan.Invalid
		}
		whole.Add(o)
		resumed.AddDone(task.Cell.ID, task.Repetition, whole.number(o))
	}
	for _, task := range run.Tasks() {
		if whole.Needed(task) != resumed.Needed(task) {
			t.Errorf("task %s is needed: %v, resumed: %v", task.ID, whole.Needed(task), resumed.Needed(task))
		}
	}
	if c := resumed.Cell("a"); c.Over || c.Numbers != 5 {
		t.Errorf("with one invalid repetition of six: %+v; want it to go on", c)
	}
}

// A lost repetition must be repeated, and decisions that used it do not hold. Later repetitions stay.
func TestLostRepetitionIsRepeated(t *testing.T) {
	run := study(t, "ci < 5%", 10)
	rounds := New(run)
	for n := 1; n <= 7; n++ {
		if n != 3 {
			rounds.Add(measured("a", n, 1000))
		}
	}
	if c := rounds.Cell("a"); c.Over || !rounds.Needed(plan.Task{Cell: run.Cells[0], Repetition: 3}) {
		t.Errorf("without the third: %+v", c)
	}
	rounds.Add(measured("a", 3, 1000))
	if c := rounds.Cell("a"); !c.Over || c.Repeat != 7 || c.Done != 7 ||
		rounds.Needed(plan.Task{Cell: run.Cells[0], Repetition: 8}) {
		t.Errorf("with it: %+v", c)
	}
	rounds.Add(measured("a", 99, 1)) // does not belong to a task
	rounds.Add(measured("x", 1, 1))
	if rounds.Tasks() != 17 {
		t.Errorf("%d tasks, want 7 and 10", rounds.Tasks())
	}
}

func TestReasonsOfMissedAccuracy(t *testing.T) {
	for want, outcome := range map[string]func(plan.Task) plan.Outcome{
		"cannot be computed as a part of its median, which is zero, after 6": func(x plan.Task) plan.Outcome {
			return measured(x.Cell.ID, x.Repetition, float64(x.Repetition%3-1))
		},
		"cannot be computed: 0 of 6 repetitions are valid and have a number, and it takes 6": func(x plan.Task) plan.Outcome {
			o := measured(x.Cell.ID, x.Repetition, 5)
			o.Values["publish.rate"] = plan.Value{NA: "no"}
			return o
		},
		"cannot be computed: 6 of 11 repetitions are valid and have a number, wanted": withBacklog,
	} {
		run := study(t, "ci < 5%", 6)
		if strings.Contains(want, "of 11") {
			run = study(t, "ci < 5%", 11)
		}
		rounds := New(run)
		execute(run, rounds, outcome)
		if got := rounds.Missed("a"); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// withBacklog is an outcome of a cell that has a number in every second repetition.
func withBacklog(x plan.Task) plan.Outcome {
	o := measured(x.Cell.ID, x.Repetition, 5)
	if x.Repetition%2 == 0 {
		o.Values["publish.rate"] = plan.Value{NA: string(plan.Backlog)}
	}
	return o
}

// Repetitions with a backlog or with a lower bound are not left out: they could have had any number. Five of 11 leave
// the interval unbounded. One of 10 only makes it wider.
func TestRepetitionsWithoutANumberCount(t *testing.T) {
	run := study(t, "ci < 5%", 11)
	rounds := New(run)
	if times := execute(run, rounds, withBacklog); times["a"] != 11 || rounds.Cell("a").Known {
		t.Errorf("5 of 11 repetitions with backlog: measured %v, %+v", times, rounds.Cell("a"))
	}
	for part, known := range map[float64]bool{1.001: true, 1.2: false} {
		rounds = New(run)
		for n := 1; n <= 10; n++ {
			o := measured("a", n, 1000)
			switch n {
			case 1:
				o.Values["publish.rate"] = plan.Value{Number: 2000, Over: 3}
			case 2, 3:
				o.Values["publish.rate"] = plan.Value{Number: 1000 * part}
			}
			rounds.Add(o)
		}
		if c := rounds.Cell("a"); c.Reached != known || !c.Known {
			t.Errorf("a bound and two of 10 that differ by a factor of %v: %+v, want reached: %v", part, c, known)
		}
	}
}

// The interval at which a cell stopped has nearly its nominal coverage. The measured coverage is printed for
// docs/decisions/statistics.md.
func TestCoverageOfStopping(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const cells = 1000
	for _, noise := range []float64{0.02, 0.05, 0.1} {
		held, times := 0, 0
		for range cells {
			run := study(t, "ci < 5%", 20)
			rounds := New(run)
			times += execute(plan.Run{ID: run.ID, Cells: run.Cells[:1], Repeat: 20}, rounds,
				func(x plan.Task) plan.Outcome {
					return measured(x.Cell.ID, x.Repetition, 1000*(1+noise*random.NormFloat64()))
				})["a"]
			if low, high := rounds.interval("a"); low <= 1000 && 1000 <= high {
				held++
			}
		}
		t.Logf("noise %g: %.1f repetitions in the mean, the interval holds the median in %.1f %%", noise,
			float64(times)/cells, 100*float64(held)/cells)
		if float64(held)/cells < 0.9 {
			t.Errorf("noise %g: the interval holds the median in %.1f %% only", noise, 100*float64(held)/cells)
		}
	}
}

func TestRunsWithoutARule(t *testing.T) {
	run := plan.Run{Cells: []plan.Cell{{ID: "a"}, {ID: "b"}}, Repeat: 3}
	rounds := New(run)
	times := execute(run, rounds, func(x plan.Task) plan.Outcome { return measured(x.Cell.ID, x.Repetition, 1) })
	if times["a"] != 3 || rounds.Tasks() != 6 || rounds.Open() || rounds.Cell("a").Repeat != 3 ||
		rounds.Missed("a") != "" {
		t.Errorf("measured %v, %d tasks", times, rounds.Tasks())
	}
}
