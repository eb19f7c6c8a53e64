package main

import (
	"os"
	"path/filepath"
)

// releaseNeeds are the programs that Ansible roles install on the hosts of a test. RabbitMQ is a package: the hosts use
// the packages of this machine.
var releaseNeeds = append([]need{java, kafka43, artemis256, activemq63}, append(influxNeeds, rabbitNeeds...)...)

// planReleases links the programs in the layout of their release archives, each in its own folder. It starts nothing.
func planReleases(s *site, dir string, _ []int) (*Plan, error) {
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
	return &Plan{Env: []string{"LOCKSTEP_RELEASES=" + dir}}, nil
}
