package plan

// Hook is something that a controller tells of a schedule's run, as the file of its own host says (controller --hooks).
// A schedule names it; what is run or called is written in that file alone. Exactly one of Command and Webhook is set.
type Hook struct {
	Name    string            `json:"name"`
	Command []string          `json:"command,omitempty"` // the program and its arguments
	Webhook string            `json:"webhook,omitempty"` // may refer to secrets, as Headers may
	Headers map[string]string `json:"headers,omitempty"`
	Compare bool              `json:"compare,omitempty"` // what the command prints is a comparison
	Timeout Duration          `json:"timeout"`           // of one attempt
	Retries int               `json:"retries"`           // attempts after the first
	Backoff Duration          `json:"backoff"`           // before the first of them; doubles
}
