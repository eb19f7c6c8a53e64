// Package schema embeds the CUE schema of matrices. CUE files import it by Path.
package schema

import _ "embed"

// Path is the import path of the schema in CUE files.
const Path = "lockstep.test/schema"

// Source is the schema, in CUE.
//
//go:embed schema.cue
var Source string
