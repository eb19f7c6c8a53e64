package main

import "os/exec"

// chromium is the browser that the system's packages have. Which version that is, is theirs: it has to be patched more
// often than a lab.
var chromium = debian{file: "chromium", packages: "chromium"}

func planChromium(*site, string) (*Plan, error) {
	path, err := exec.LookPath(chromium.file)
	if err != nil {
		return nil, err
	}
	return &Plan{Env: func() []string { return []string{"LOCKSTEP_CHROMIUM=" + path} }}, nil
}
