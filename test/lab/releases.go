package main

import (
	"os"
	"path/filepath"
)

// releaseNeeds are programs that roles install on hosts which a test makes. RabbitMQ is a package: such hosts have
// those of this machine.
var releaseNeeds = append([]need{java, kafka43, artemis256, activemq63}, append(influxNeeds, rabbitNeeds...)...)

// planReleases lays programs out as their authors' archives do, each in a folder of its name, and starts none.
func planReleases(s *site, dir string) (*Plan, error) {
	for name, program := range map[string]string{
		"kafka/libs":   kafka43.in(s),
		"artemis":      artemis256.in(s),
		"activemq/lib": activemq63.in(s),
		"influxdb":     influxd29.in(s),
	} {
		link := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			return nil, err
		}
		if err := os.Symlink(program, link); err != nil {
			return nil, err
		}
	}
	return &Plan{Env: func() []string { return []string{"LOCKSTEP_RELEASES=" + dir} }}, nil
}
