package keys

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"lockstep/internal/wire/subject"
)

// User is somebody whom the control plane knows.
type User struct {
	Role Role   `json:"role"`
	Name string `json:"name"` // of the agent; else the role's
	// Slots is how many an agent may have (agent --slots); 0: one.
	Slots int       `json:"slots,omitempty"`
	Key   string    `json:"key"` // public
	Made  time.Time `json:"made"`
}

// File is where the user's seed is, in the folder.
func (u User) File() string {
	if u.Role == RoleAgent {
		return filepath.Join("agents", subject.EncodeToken(u.Name)+".nk")
	}
	return u.Name + ".nk"
}

// String names the user in messages.
func (u User) String() string {
	if u.Role == RoleAgent {
		return "agent " + u.Name
	}
	return "the " + u.Name
}

// names are those under which the user does tasks.
func (u User) names() []string {
	names := make([]string, max(u.Slots, 1))
	for slot := range names {
		names[slot] = SlotName(u.Name, slot)
	}
	return names
}

// agentName is what agents can be called: the rule of their labels' names.
var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// CheckName checks an agent's name. The error says how to write one.
func CheckName(name string) error {
	if !agentName.MatchString(name) {
		return fmt.Errorf("name %q: write it of letters, digits, \".\", \"_\" and \"-\", beginning with a letter or digit, like load-1", name)
	}
	return nil
}

// heldBy begins the line of a seed's file that names its user.
const heldBy = "# Seed of "

// Holder returns whose seed a file is, like "agent a1"; empty: it does not name anybody.
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
