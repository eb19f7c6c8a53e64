package wire

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"time"

	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire/subject"
)

// ErrNoSchedule is wrapped by errors about a schedule that does not exist.
var ErrNoSchedule = errors.New("no such schedule")

// ErrChanged is wrapped by the error of a change to a schedule that was changed since it was read.
var ErrChanged = errors.New("it was modified concurrently")

// KeptSchedule is a schedule as stored on the control plane. Err is set if it cannot be used.
type KeptSchedule struct {
	Name     string
	Revision uint64 // of the value; grows with each change; 0: nothing was read yet
	Schedule schedule.Schedule
	Err      error

	stored time.Time // of the value; a server that came back without its data may repeat a revision
}

// maxSchedules bounds the memory of schedules, which the leader has decoded: each has at most 2 MiB, with its history.
const maxSchedules = 100

func readSchedule(key string, value []byte, revision uint64) KeptSchedule {
	kept := KeptSchedule{Revision: revision}
	if kept.Name, kept.Err = subject.DecodeToken(key); kept.Err != nil {
		kept.Name = key[:min(len(key), MaxName)]
		return kept
	}
	z, err := gzip.NewReader(bytes.NewReader(value))
	if err == nil {
		kept.Schedule, err = schedule.Read(z)
	}
	if err == nil && kept.Schedule.Name != kept.Name {
		err = fmt.Errorf("read schedule %s: its stored name is %s", kept.Name, kept.Schedule.Name)
	}
	kept.Err = err
	return kept
}

// ErrNoBaseline is wrapped by errors about a baseline that does not exist.
var ErrNoBaseline = errors.New("no such baseline on the control plane; list its baselines with ctl history baseline list, and those of a folder with --context local --runs DIR")
