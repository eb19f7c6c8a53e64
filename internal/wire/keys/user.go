package keys

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"example.org/lockstep/lockstep/internal/wire/subject"
)

// User is a user of the control plane.
type User struct {
	Role Role   `json:"role"`
	Name string `json:"name"` // of the agent; other roles: the role's name
	// Slots is the maximum number of slots of an agent (lockstep-agent --slots); 0: one.
	Slots int       `json:"slots,omitempty"`
	Key   string    `json:"key"` // public key
	Made  time.Time `json:"made"`
}

// File returns the path of the user's seed, relative to the folder.
func (u User) File() string {
	if u.Role == RoleAgent {
		return filepath.Join("agents", subject.EncodeToken(u.Name)+".nk")
	}
	return u.Name + ".nk"
}

// String returns the user's name for messages, such as "agent a1" or "the client".
func (u User) String() string {
	if u.Role == RoleAgent {
		return "agent " + u.Name
	}
	return "the " + u.Name
}

// names returns the names under which the user executes tasks, one per slot.
func (u User) names() []string {
	names := make([]string, max(u.Slots, 1))
	for slot := range names {
		names[slot] = SlotName(u.Name, slot)
	}
	return names
}

// agentName matches the valid names of agents, which follow the rule of label names.
var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// CheckName returns an error, with the rule, if an agent's name is invalid.
func CheckName(name string) error {
	if !agentName.MatchString(name) {
		return fmt.Errorf("name %q: invalid; use letters, digits, \".\", \"_\" and \"-\", with a letter or digit first, such as load-1", name)
	}
	return nil
}

// heldBy is the beginning of the line with the user in the file of a seed.
const heldBy = "# Seed of "

// Holder returns the user named in the file of a seed, such as "agent a1"; empty: none.
func Holder(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	defer clear(text)
	_, after, _ := bytes.Cut(text, []byte(heldBy))
	name, _, _ := bytes.Cut(after, []byte("\n"))
	return string(name)
}
