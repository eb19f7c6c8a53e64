package history

import (
	"fmt"
	"strings"

	"go.etcd.io/bbolt"

	"lockstep/internal/plan"
)

// SetBaseline keeps a run as what others are compared with, under a name: that of its matrix, if it has none. It replaces the one of that name.
func (s *Store) SetBaseline(b plan.Baseline) error {
	return s.update(s.path, func(tx *bbolt.Tx) error {
		return put(tx.Bucket(bucketBaselines), b.Name, b)
	})
}

// Baselines lists the baselines, by name.
func (s *Store) Baselines() ([]plan.Baseline, error) {
	var all []plan.Baseline
	err := s.view(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bucketBaselines)
		return bucket.ForEach(func(name, _ []byte) error {
			var b plan.Baseline
			_, err := get(bucket, string(name), &b)
			all = append(all, b)
			return err
		})
	})
	return all, err
}

// Baseline is the baseline of a name.
func (s *Store) Baseline(name string) (plan.Baseline, error) {
	all, err := s.Baselines()
	if err != nil {
		return plan.Baseline{}, err
	}
	var names []string
	for _, b := range all {
		if b.Name == name {
			return b, nil
		}
		names = append(names, b.Name)
	}
	if len(names) == 0 {
		return plan.Baseline{}, fmt.Errorf("there is no baseline %q, nor any other: ctl baseline set RUN makes one", name)
	}
	return plan.Baseline{}, fmt.Errorf("there is no baseline %q (there are: %s)", name, strings.Join(names, ", "))
}

// RemoveBaseline forgets a baseline; its run stays.
func (s *Store) RemoveBaseline(name string) error {
	if _, err := s.Baseline(name); err != nil {
		return err
	}
	return s.update(s.path, func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketBaselines).Delete([]byte(name))
	})
}
