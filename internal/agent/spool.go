package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"lockstep/internal/plan"
	"lockstep/internal/record"
	"lockstep/internal/wire"
)

// spoolBytes bounds what an agent keeps on disk for a control plane that is away.
const spoolBytes = 1 << 30

// errSpoolFull is a spool that has reached its bound.
var errSpoolFull = errors.New("the spool is full")

// batch is what one file of the spool holds: a part of what an agent has to say of a try.
type batch struct {
	Protocol  int               `json:"protocol"`
	Ref       wire.Ref          `json:"ref"`
	Agent     string            `json:"agent"`
	Key       string            `json:"key"` // of the messages' ids
	Snapshots []record.Snapshot `json:"snapshots"`
	Arrival   *wire.Arrival     `json:"arrival,omitempty"` // after the snapshots
}

// owner is whose a file of the spool is.
type owner struct {
	ref   wire.Ref
	agent string
}

// prefix begins the names of an owner's files; one that sorts after another was written after it.
func (o owner) prefix() string { return o.ref.String() + "@" + wire.Word(o.agent) + "-" }

// spool keeps on disk what the control plane has not taken yet, so that it outlives this process: small files, each whole or not there, deleted when
// their content is stored on the control plane. Safe for concurrent use; of a nil one nothing is kept.
type spool struct {
	dir  string
	most int64
	log  *slog.Logger

	mu    sync.Mutex
	files map[string]int64 // sizes, by name
	size  int64
	live  map[string]bool // prefixes of tasks that hand over by themselves
	next  uint64
}

// openSpool finds what the process before left. An unfinished file is one that nobody was told of.
func openSpool(dir string, most int64, log *slog.Logger) (*spool, error) {
	s := &spool{dir: dir, most: most, log: log, files: map[string]int64{}, live: map[string]bool{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the agent's spool: %w; give another folder with --dir", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the agent's spool: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if strings.HasSuffix(name, ".tmp") {
			_ = os.Remove(filepath.Join(dir, name))
			continue
		}
		s.files[name], s.size = info.Size(), s.size+info.Size()
		var n uint64
		if _, err := fmt.Sscanf(name[strings.LastIndexByte(name, '-')+1:], "%d.json", &n); err == nil {
			s.next = max(s.next, n+1)
		}
	}
	return s, nil
}

// put stores a batch for good, before it returns.
func (s *spool) put(b batch) error {
	if s == nil {
		return nil
	}
	text, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("keep a part of task %s: %w", b.Ref.Task, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size+int64(len(text)) > s.most {
		return fmt.Errorf("keep a part of task %s: %w: %d bytes are in %s, at most %d may be", b.Ref.Task, errSpoolFull, s.size, s.dir, s.most)
	}
	name := fmt.Sprintf("%s%012d.json", owner{b.Ref, b.Agent}.prefix(), s.next)
	if err := writeWhole(filepath.Join(s.dir, name), text); err != nil {
		return fmt.Errorf("keep a part of task %s: %w", b.Ref.Task, err)
	}
	s.next++
	s.files[name] = int64(len(text))
	s.size += int64(len(text))
	return nil
}

// writeWhole makes a file that is there with all its content, or not at all, whatever happens to the host.
func writeWhole(path string, text []byte) (err error) {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path + ".tmp")
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(path+".tmp", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// hold keeps an owner's files from being handed over, as its task does that itself, until let is called.
func (s *spool) hold(o owner) (let func()) {
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[o.prefix()] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.live, o.prefix())
	}
}

// drop deletes an owner's files: all that is in them is stored.
func (s *spool) drop(o owner) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.files {
		if strings.HasPrefix(name, o.prefix()) {
			s.remove(name)
		}
	}
}

// remove deletes a file. The caller holds mu. One that cannot be deleted is handed over again, which does no harm.
func (s *spool) remove(name string) {
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Error("delete from the spool", "file", name, "err", err)
		return
	}
	s.size -= s.files[name]
	delete(s.files, name)
}

// parts counts the tries of which something waits to be handed over.
func (s *spool) parts() int {
	if s == nil {
		return 0
	}
	owners := map[string]bool{}
	for _, name := range s.waiting() {
		owners[name[:strings.LastIndexByte(name, '-')]] = true
	}
	return len(owners)
}

// waiting lists the files that no task hands over itself, in the order in which each owner wrote them.
func (s *spool) waiting() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.files {
		if dash := strings.LastIndexByte(name, '-'); strings.HasSuffix(name, ".json") && dash > 0 && !s.live[name[:dash+1]] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// room refuses new tasks when there is none left: their parts could not be kept.
func (s *spool) room() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size < s.most {
		return nil
	}
	return fmt.Errorf("%w: %d bytes that the control plane has not taken are in %s, at most %d may be; see why it does not take them, or remove them if they are of no use",
		errSpoolFull, s.size, s.dir, s.most)
}

// read reads a file of the spool. One that cannot be read, or is of another protocol version, is put aside.
func (s *spool) read(name string) (b batch, err error) {
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		return b, err
	}
	if err = json.Unmarshal(text, &b); err == nil && b.Protocol != plan.Protocol {
		err = fmt.Errorf("it is of protocol %d and this agent speaks %d", b.Protocol, plan.Protocol)
	}
	if err == nil {
		return b, nil
	}
	return b, fmt.Errorf("read %s of the spool, put aside as %s: %w", name, s.aside(name, "unreadable"), err)
}

// aside gives a file another name, under which it is not handed over and still takes room.
func (s *spool) aside(name, why string) (now string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now = name + "." + why
	if moved := os.Rename(filepath.Join(s.dir, name), filepath.Join(s.dir, now)); moved == nil {
		s.files[now] = s.files[name]
		delete(s.files, name)
	}
	return now
}
