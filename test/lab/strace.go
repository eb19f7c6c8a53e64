package main

// strace is the program of the system's packages. Tests find it in the path.
var strace = debian{file: "strace", packages: "strace"}

func planStrace(*site, string) (*Plan, error) {
	return &Plan{Env: func() []string { return nil }}, nil
}
