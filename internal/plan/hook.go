package plan

// Hook is a notification of a controller about runs of a schedule, by a command or a webhook. It is defined in a file
// on the controller's host (lockstep-controller --hooks); schedules only refer to it by name. Exactly one of Command
// and Webhook is set.
type Hook struct {
	Name    string            `json:"name"`
	Command []string          `json:"command,omitempty"` // program and arguments
	Webhook string            `json:"webhook,omitempty"` // URL; may contain references to secrets, as Headers may
	Headers map[string]string `json:"headers,omitempty"`
	Compare bool              `json:"compare,omitempty"` // the command prints a comparison
	Timeout Duration          `json:"timeout"`           // per attempt
	Retries int               `json:"retries"`           // attempts after the first
	Backoff Duration          `json:"backoff"`           // pause before the first retry; doubles with each retry
}
