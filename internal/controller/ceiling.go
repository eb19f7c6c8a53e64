package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"lockstep/internal/files"
	"lockstep/internal/plan"
	"lockstep/internal/wire"
)

const (
	// maxCeilings is the number of ceilings that one run measures, about a second each. Later runs measure the rest.
	maxCeilings = 10
	// ceilingLimit is the time that an agent has for a ceiling.
	ceilingLimit = 5 * time.Second
	// ceilingAge is the time after which a ceiling is measured again.
	ceilingAge = 24 * time.Hour
	// maxCeiling is the maximum rate that an agent can report, in messages per second.
	maxCeiling = 1e12
)

// Ceilings stores the measured ceilings, so that runs on equal agents do not measure them again. Safe for concurrent
// use.
type Ceilings struct {
	path  string // of the file; empty: in memory
	build string

	mu sync.Mutex
	of map[string]storedLimits // by build and load, and by version, host and cores of the agents
}

// storedLimits are limits with the time of their measurement.
type storedLimits struct {
	Limits   plan.Limits `json:"limits"`
	Measured time.Time   `json:"measured"`
}

// OpenCeilings returns the ceilings of a file, which is created when the first is stored. An empty path keeps them in
// memory. A file that cannot be read is replaced. build distinguishes programs of the same version.
func OpenCeilings(path, build string) *Ceilings {
	return &Ceilings{path: path, build: build, of: map[string]storedLimits{}}
}

// load adds the ceilings of the file, as other processes may have written it.
func (c *Ceilings) load() error {
	if c.path == "" {
		return nil
	}
	data, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	stored := map[string]storedLimits{}
	if err == nil {
		err = json.Unmarshal(data, &stored)
	}
	if err != nil {
		return fmt.Errorf("read the ceilings of the load generator: %w", err)
	}
	maps.Copy(c.of, stored)
	return nil
}

func (c *Ceilings) get(key string) (plan.Limits, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.of[c.build+key]
	return l.Limits, ok && time.Since(l.Measured) < ceilingAge
}

func (c *Ceilings) put(key string, l plan.Limits) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.load() // reported before; it is replaced
	c.of[c.build+key] = storedLimits{l, time.Now()}
	maps.DeleteFunc(c.of, func(_ string, l storedLimits) bool { return time.Since(l.Measured) >= ceilingAge })
	if c.path == "" {
		return nil
	}
	data, err := json.Marshal(c.of)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(c.path), 0o755)
	}
	if err == nil {
		err = files.WriteRecord(c.path, data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("store the ceilings of the load generator: %w", err)
	}
	return nil
}

// ceilings returns the ceiling of each load of the run. It measures those that are not known, on the agents of the
// first task with this load, at most maxCeilings. It measures none while another run is executed, which would disturb
// both. Cells on the loopback driver have no ceiling: their results are ceilings.
func (x *execution) ceilings(tasks []plan.Task) []plan.Ceiling {
	store := x.leader.cfg.Ceilings
	if store == nil {
		return nil
	}
	store.mu.Lock()
	err := store.load()
	store.mu.Unlock()
	if err != nil {
		x.log.Warn("ceilings are measured again", "err", err)
	}
	var all []plan.Ceiling
	seen := map[plan.LoadShape]bool{}
	fit := x.fit(x.between)
	measured := 0
	if !x.leader.queue.alone(x.queued) {
		measured = maxCeilings
	}
	for _, t := range tasks {
		for _, part := range t.Parts() {
			shape, publishes := part.Cell.Workload.Shape()
			if !publishes || part.Cell.Broker.Driver == "loopback" || seen[shape] {
				continue
			}
			seen[shape] = true
			ceiling := plan.Ceiling{Load: shape}
			if agents, assignments := publishing(t, part, fit); len(agents) > 0 {
				key := ceilingKey(shape, agents)
				limits, known := store.get(key)
				if !known && measured < maxCeilings && x.between.Err() == nil {
					measured++
					switch limits, err = x.measureCeiling(agents, assignments); {
					case err == nil && !x.leader.queue.alone(x.queued): // a run that began meanwhile has disturbed it
						measured = maxCeilings
					case err == nil:
						known, err = true, store.put(key, limits)
					case errors.Is(err, errNoCeiling):
						measured = maxCeilings // the others would not get one either
					}
					if err != nil {
						x.log.Warn("ceiling of the load generator", "mode", shape.Mode, "err", err)
					}
				}
				if known {
					ceiling.Limits = &limits
				}
			}
			all = append(all, ceiling)
		}
	}
	return all
}

// publishing returns the publishing agents of one part of a task, with their assignments; none if agents are missing.
func publishing(t, part plan.Task, fit []wire.AgentInfo) (agents []wire.AgentInfo, assignments []plan.Assignment) {
	all, missing := assignAgents(t.Cell, fit)
	if missing != nil {
		return nil, nil
	}
	for i, a := range plan.Assign(t, names(all)) {
		if a.Task.Group == part.Group && a.Publishers.Count > 0 {
			a.Ceiling, a.Deadline, a.Task.Attempt = true, plan.Duration(ceilingLimit), wire.NewName()
			a.Task.Cell.Broker = plan.Broker{Name: "loopback"} // the agent needs neither its options nor its secrets
			agents, assignments = append(agents, all[i]), append(assignments, a)
		}
	}
	return agents, assignments
}

func ceilingKey(shape plan.LoadShape, agents []wire.AgentInfo) string {
	hosts := make([]string, len(agents))
	for i, a := range agents {
		hosts[i] = fmt.Sprintf("%s %d %s", a.Version, a.Cores, a.Host)
	}
	slices.Sort(hosts)
	return fmt.Sprintf("%+v on %s", shape, strings.Join(hosts, ", "))
}

// errNoCeiling means that an agent did not respond.
var errNoCeiling = errors.New("an agent did not report its ceiling")

// measureCeiling measures on all agents at the same time.
func (x *execution) measureCeiling(agents []wire.AgentInfo, assignments []plan.Assignment) (plan.Limits, error) {
	arrivals := make([]wire.Arrival, len(agents))
	var measuring errgroup.Group
	for i, agent := range agents {
		measuring.Go(func() (err error) {
			arrivals[i], err = x.open(agent, assignments[i])
			return err
		})
	}
	if err := measuring.Wait(); err != nil {
		return plan.Limits{}, fmt.Errorf("%w: %w", errNoCeiling, err)
	}
	var all plan.Limits
	for _, v := range arrivals {
		if v.Error != "" {
			return plan.Limits{}, errors.New(v.Error)
		}
		if v.Limits == nil || v.Limits.Rate <= 0 || v.Limits.Rate > maxCeiling {
			return plan.Limits{}, fmt.Errorf("agent %s published nothing, or reported an impossible rate", v.Agent)
		}
		all.Rate += v.Limits.Rate
		all.Publish, all.EndToEnd = max(all.Publish, v.Limits.Publish), max(all.EndToEnd, v.Limits.EndToEnd)
	}
	return all, nil
}
