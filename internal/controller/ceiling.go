package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"example.org/lockstep/lockstep/internal/files"
	"example.org/lockstep/lockstep/internal/plan"
)

const (
	// maxCeilings is the number of ceilings that one run measures, about a second each. Later runs measure the rest.
	maxCeilings  = 10
	ceilingLimit = 5 * time.Second // for the measurement of one
	ceilingAge   = 24 * time.Hour  // after which a ceiling is measured again
	maxCeiling   = 1e12            // messages per second that an agent can report
)

// Ceilings stores measured ceilings, so that runs on equal agents do not measure them again. Safe for concurrent use.
type Ceilings struct {
	path  string // of the file; empty: in memory
	build string

	mu sync.Mutex
	of map[string]storedLimits // by build and load, and by version, host and cores of the agents
}

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

func (c *Ceilings) get(key string) (limits plan.Limits, known bool, unread error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unread = c.load()
	l, ok := c.of[c.build+key]
	return l.Limits, ok && time.Since(l.Measured) < ceilingAge, unread
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
