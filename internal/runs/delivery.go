package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"lockstep/internal/files"
	"lockstep/internal/judge"
	"lockstep/internal/plan"
)

// deliveryFile tells what came of writing the run's points to InfluxDB.
const deliveryFile = "sink.json"

type deliveries struct {
	Version    int             `json:"version"`
	Deliveries []plan.Delivery `json:"deliveries"` // one for the run, and one for each time that it was resumed or copied again
}

// AddDelivery keeps what came of handing the points of the run to InfluxDB. Unlike the others, it may be called while another process writes: points may
// be written again while the run goes on.
func (r *Run) AddDelivery(d plan.Delivery) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	unlock, err := r.lock()
	if err != nil {
		return fmt.Errorf("keep what was written to InfluxDB of run %s: %w", r.plan.ID, err)
	}
	defer unlock()
	all, err := r.deliveries()
	if err != nil {
		r.warn(fmt.Sprintf("%s written anew: %v", deliveryFile, err))
	}
	text, err := encode(deliveries{Version: judge.Version, Deliveries: append(all, d)})
	if err == nil {
		err = writeAtomic(filepath.Join(r.dir, deliveryFile), text)
	}
	if err != nil {
		return fmt.Errorf("keep what was written to InfluxDB of run %s: %w", r.plan.ID, err)
	}
	return nil
}

// lock waits until no other process has the run's directory locked.
func (r *Run) lock() (unlock func() error, err error) {
	dir, err := os.Open(r.dir)
	if err != nil {
		return nil, err
	}
	if err := files.Lock(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("lock its directory: %w", err), dir.Close())
	}
	return dir.Close, nil
}

// Deliveries tells what came of handing the points of the run to InfluxDB, in order of time. What is damaged is left out, with a warning.
func (r *Run) Deliveries() []plan.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, err := r.deliveries()
	if err != nil {
		r.warn(fmt.Sprintf("%s left out: %v", deliveryFile, err))
	}
	return all
}

func (r *Run) deliveries() ([]plan.Delivery, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, deliveryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all deliveries
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	return all.Deliveries, nil
}
