package main

import "os/exec"

// chromium is the browser of the system's packages. Its version is not pinned, because it needs frequent security
// updates.
var chromium = debian{file: "chromium", packages: "chromium"}

func planChromium(*site, string) (*Plan, error) {
	path, err := exec.LookPath(chromium.file)
	if err != nil {
		return nil, err
	}
	return &Plan{Env: func() []string { return []string{"LOCKSTEP_CHROMIUM=" + path} }}, nil
}
