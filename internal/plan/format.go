package plan

import "fmt"

// Protocol is the format number of messages between programs over the control plane. Peers with another number are
// rejected.
const Protocol = 14

// RecordFormat is the format number of records: run directories, outcomes, bundles, schedules, and stored messages of
// the record and the queue. Readers reject another number.
const RecordFormat = 13

// CheckFormat returns an error that names both numbers unless format is RecordFormat.
func CheckFormat(format int) error {
	if format == RecordFormat {
		return nil
	}
	return fmt.Errorf("format %d: this program reads format %d: use the release of Lockstep that wrote it", format,
		RecordFormat)
}
